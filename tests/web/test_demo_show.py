"""The show: ``leasework demo`` with its buttons pressed in a real browser.

The default suite presses two of them; ``make demo-show`` presses them all. What may not be done to
somebody's own database: tests/e2e/test_demo.py.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import httpx
import pytest

from tests.support.procs import Process
from tests.support.wait import until
from tests.web.conftest import Open

ALL = bool(os.environ.get("LEASEWORK_LONG"))
SHOTS = os.environ.get("LEASEWORK_SHOTS", "")
RECOVERY = 60_000
"""Milliseconds, for a busy machine; what it took is on the page."""


@dataclass
class Show:
    process: Process
    page: Any
    url: str
    home: Path

    def press(self, value: str) -> str:
        """What the page says to it."""
        self.page.click(f"button[value='{value}']")
        said: str = self.page.inner_text(".said")
        assert self.page.locator(".said.bad").count() == 0, said
        return said

    def well_again(self, kind: str, times: int = 1) -> str:
        """What the page says when that has been recovered from."""
        done = f"#acts li[data-kind={kind}]:not([data-well='not yet'])"
        self.page.wait_for_selector(f"{done} >> nth={times - 1}", timeout=RECOVERY)
        said: str = self.page.locator(done).first.inner_text()
        assert self.page.locator(f"#acts li[data-kind={kind}][data-well=no]").count() == 0, said
        return said

    def pids(self) -> set[int]:
        """Its worker processes."""
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if b"leasework_lab.demo.worker" in words and os.fsencode(self.home) in environ:
                found.add(int(entry.name))
        return found

    def postmaster(self) -> int:
        [found] = self.home.glob("leasework-demo-*/pgdata/postmaster.pid")
        return int(found.read_text().split()[0])

    def shoot(self, name: str) -> None:
        if SHOTS:
            self.page.screenshot(path=f"{SHOTS}/demo-{name}.png", full_page=True)


@pytest.fixture
def show(procs: Any, page_at: Open, tmp_path: Path) -> Iterator[Show]:
    # pytest's own folders are closed to the account that the server runs under
    home = Path(tempfile.mkdtemp(prefix="lh-show-"))
    home.chmod(0o711)
    env = {"TMPDIR": str(home), "LEASEWORK_DSN": ""}
    report = str(tmp_path / "demo.html")
    began = time.monotonic()
    process = procs.start("-m", "leasework", "demo", "--report", report, name="show", env=env)
    url = process.wait_for(r"The show: (http://127\.0\.0\.1:\d+/demo)", 60)[1]
    page = page_at(url)
    page.wait_for_selector("#done:not([data-count='0'])", timeout=RECOVERY)
    moving = time.monotonic() - began
    print(f"from the command to the moving page: {moving:.1f} s")
    assert moving <= 10 or not ALL
    yield Show(process, page, url, home)
    rmtree(home, ignore_errors=True)


def state_of(pid: int) -> str:
    """``T``: stopped; "": gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def pid_in(said: str) -> int:
    found = re.search(r"pid (\d+)", said)
    assert found, said
    return int(found[1])


def test_each_button_breaks_what_it_says_and_the_page_shows_the_recovery(show: Show, tmp_path):
    until(lambda: len(show.pids()) == 4, 30, "four processes")
    show.page.wait_for_selector("dd:text-is('running')", timeout=RECOVERY)
    kill(show)
    if ALL:
        freeze_and_cut_off(show)
        deploy(show)
    crash_the_database(show)
    show.shoot("broken")
    usable_on_a_phone(show)
    check_forms(show)
    show.page.click("text=Stop and show the scorecard")
    show.page.wait_for_selector("#card", timeout=2 * RECOVERY)
    assert "Nothing was lost, and nothing was repeated without a cause" in show.page.inner_text(
        "#card"
    )
    show.shoot("card")
    with show.page.expect_download() as download:
        show.page.click("text=Download the report")
    check_report(Path(download.value.path()).read_text())
    show.page.close()  # else its console complains of the server's end
    assert show.process.running, "the page stays until somebody ends it"
    show.process.kill(signal.SIGINT)
    assert show.process.wait(60) == 0, show.process.tail()
    assert "ok: nothing was lost, and nothing was repeated without a cause" in show.process.output
    check_report((tmp_path / "demo.html").read_text())
    until(lambda: not show.pids(), 30, "the end of every process")


def kill(show: Show) -> None:
    pid = pid_in(show.press("kill"))
    until(lambda: state_of(pid) in ("", "Z"), 10, "its death")
    said = show.well_again("kill")
    assert f"kill -9 of pid {pid}" in said and re.search(r"pid \d+ led after [\d.]+ s", said)
    show.page.wait_for_selector(".terms .struck")
    show.page.wait_for_selector("#leader:not(:has-text('nobody'))", timeout=RECOVERY)


def freeze_and_cut_off(show: Show) -> None:
    until(lambda: len(show.pids()) == 4, 30, "another process in its place")
    frozen = pid_in(show.press("freeze:worker"))
    assert state_of(frozen) == "T"
    cut = pid_in(show.press("cut:leader"))
    assert frozen != cut and state_of(cut) != "T"
    assert "declared dead after" in show.well_again("freeze")
    assert re.search(r"declared dead after .* pid \d+ led after", show.well_again("cut"))
    show.page.wait_for_selector(".terms .hurt")
    show.shoot("frozen")
    assert pid_in(show.press("thaw")) == frozen
    assert state_of(frozen) != "T"
    assert "as a new node" in show.well_again("thaw")
    assert pid_in(show.press("mend")) == cut
    assert "as a new node" in show.well_again("mend")
    assert show.page.locator(".terms .overlap").count() == 0, (
        "it knew in time that its term was over"
    )


def deploy(show: Show) -> None:
    blue = show.pids()
    show.press("deploy")
    show.page.wait_for_selector("text=green-2 >> nth=3", timeout=RECOVERY)
    until(lambda: len(show.pids() - blue) == len(blue), 60, "as many beside")
    said = show.well_again("deploy")
    assert "green-2 was deployed beside blue-1" in said and "of green-2 led" in said
    until(lambda: not show.pids() & blue, 30, "the end of blue")


def crash_the_database(show: Show) -> None:
    before = show.postmaster()
    show.press("restart")
    assert "jobs run" in show.well_again("restart")
    assert show.postmaster() != before


def usable_on_a_phone(show: Show) -> None:
    show.page.set_viewport_size({"width": 390, "height": 860})
    show.page.emulate_media(color_scheme="dark")
    assert show.page.evaluate("document.documentElement.scrollWidth") <= 390
    show.shoot("dark-phone")
    show.page.set_viewport_size({"width": 1280, "height": 860})
    show.page.emulate_media(color_scheme="light")


def check_forms(show: Show) -> None:
    """Nobody else's page can press a button."""
    act, before = f"{show.url}/act", show.pids()
    with httpx.Client() as other:
        assert other.post(act, data={"act": "kill"}).status_code == 403
        cookie = show.page.context.cookies()[0]
        mine = {"cookie": f"{cookie['name']}={cookie['value']}"}
        for headers in (mine, {**mine, "origin": "https://evil.test"}):
            answer = other.post(act, data={"act": "kill", "form_token": "0" * 64}, headers=headers)
            assert answer.status_code == 403
        assert other.get(show.url, headers={"host": "rebound.evil.test"}).status_code == 421
        assert other.get(act).status_code == 405
        fields = show.page.locator("input[name='form_token'] >> nth=0")
        mine["origin"] = show.url.removesuffix("/demo")
        form = {"form_token": str(fields.get_attribute("value"))}
        for what in ("", "explode", "kill:'; drop table leasework.job", "x" * 9000, "freeze:\x00"):
            answer = other.post(act, data={**form, "act": what}, headers=mine)
            assert answer.status_code == 303, "it is told on the page"
        assert other.post(act, data={**form, "act": "x" * 99_000}).status_code == 413
    show.page.goto(show.url)
    assert show.pids() == before


def check_report(text: str) -> None:
    assert "Nothing was lost, and nothing was repeated without a cause" in text and "<svg" in text
    assert "kill -9 of pid" in text and "PostgreSQL crashed" in text
    assert not re.search(r"(src|href)=|@import|url\(", text), "it needs nothing from anywhere"
