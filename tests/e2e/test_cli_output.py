"""Where the output of a verb goes: to another encoding, to nobody, to a reader that has gone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from leasework import App
from leasework.cli.root import LAB, root
from tests.e2e.test_cli import Cli, bare, cli
from tests.support.wait import until_async

__all__ = ["bare", "cli"]

ROOT = Path(__file__).parents[2]
NAME = "Straße 서울 🐘"
TABLES = [
    ["jobs"],
    ["queues"],
    ["limits"],
    ["schedules"],
    ["schedules", "ticks"],
    ["leaders"],
    ["leaders", "--terms"],
    ["locks"],
    ["nodes"],
    ["events"],
    ["failures"],
    ["deadlines"],
    ["deadlines", "--unhandled"],
    ["status"],
    ["doctor"],
    ["schema", "verify"],
]
OTHERS = [
    ["metrics"],
    ["metrics", "rules"],
    ["metrics", "dashboard"],
    ["schema", "sql"],
    ["schema", "apply"],
    ["--help"],
    ["--version"],
]
NOT_READING = {"worker", "lock", "web", "import", "silence", "mcp"}
"""They have their own tests."""


@pytest.fixture
def busy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Calls a function while an application of that name has a node, jobs, a lock and so on."""
    monkeypatch.setenv("LEASEWORK_DSN", cli.dsn)

    def during(look: Callable[[], Any]) -> Any:
        async def work() -> Any:
            app = App(cli.dsn, name=NAME)

            @app.every(seconds=3600, name=NAME)
            @app.task(name=NAME)
            async def task(text: str = "", breach: object = None) -> str:
                return text

            async with app.node() as node, app.lock(NAME):
                await app.deadline(NAME, due=3600, on_breach=task)
                assert await (await task.enqueue(NAME)).wait(30) == NAME
                await until_async(node.leads)
                await until_async((await app.inspect()).schedules)
                return await asyncio.to_thread(look)

        return asyncio.run(work())

    yield during


def test_every_verb_is_in_the_lists_of_this_file() -> None:
    listed = {arguments[0] for arguments in TABLES + OTHERS} | NOT_READING | set(LAB)
    assert set(root.list_commands(click.Context(root))) <= listed


def test_every_verb_escapes_what_the_encoding_of_its_output_lacks(
    busy: Callable[[Callable[[], Any]], Any],
) -> None:
    def run(charset: str, arguments: list[str]) -> str:
        """What is printed. click writes UTF-8 for ASCII: it takes this for an unset locale."""
        done = CliRunner(charset=charset).invoke(root, arguments)
        assert done.exit_code == 0, f"{charset} {arguments}: {done.output}\n{done.exception!r}"
        unicode = charset == "ascii" or arguments == ["metrics"]
        return done.stdout_bytes.decode("utf-8" if unicode else charset)

    def look() -> None:
        for arguments in TABLES + OTHERS:
            run("latin-1", arguments)
        for arguments in TABLES:
            json.loads(run("latin-1", [*arguments, "--json"]))
        for charset in ("latin-1", "cp949", "ascii", "utf-8"):
            [schedule] = json.loads(run(charset, ["schedules", "--json"]))
            assert schedule["name"] == NAME
        assert r"Straße \uc11c\uc6b8 \U0001f418" in run("latin-1", ["schedules"])
        assert r"서울 \U0001f418" in run("cp949", ["schedules"])
        assert NAME in run("utf-8", ["schedules"]) and NAME in run("utf-8", ["schedules", "--json"])

    busy(look)


def test_every_verb_ends_as_by_sigpipe_when_its_reader_has_gone(
    busy: Callable[[Callable[[], Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> None:
        for arguments in [*TABLES, *OTHERS, ["jobs", "--help"]]:
            reader, writer = os.pipe()
            os.close(reader)
            with open(writer, "w") as output:
                monkeypatch.setattr(sys, "stdout", output)
                with pytest.raises(SystemExit) as ended:
                    root.main(arguments)
            assert ended.value.code == 141, arguments

    busy(look)


def test_without_an_output_the_exit_status_is_that_of_the_question(
    busy: Callable[[Callable[[], Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> None:
        for arguments in TABLES + OTHERS:
            monkeypatch.setattr(sys, "stdout", None)
            with pytest.raises(SystemExit) as ended:
                root.main(arguments)
            assert not ended.value.code, arguments
            sys.stdout.close()

    busy(look)


def test_closed_streams_a_gone_reader_and_a_full_disk_in_a_shell(bare: Cli) -> None:
    def shell(command: str, stdout: int = subprocess.DEVNULL) -> tuple[int, str]:
        command = command.replace("leasework", f"{sys.executable} -m leasework")
        done = subprocess.run(
            ["sh", "-c", command], stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        return done.returncode, done.stderr

    status = f"leasework status --dsn '{bare.dsn}'"
    assert shell(f"{status} <&- >&- 2>&-") == (1, "")  # the schema is missing
    reader, writer = os.pipe()
    os.close(reader)
    assert shell("leasework metrics dashboard", writer) == (141, "")
    os.close(writer)
    words = "leasework: the output could not be written: No space left on device\n"
    assert shell("leasework metrics dashboard > /dev/full") == (1, words)


def test_a_broken_pipe_of_the_application_is_no_broken_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(
        "from leasework import App\n"
        "def app():\n"
        "    return Broken()\n"
        "class Broken(App):\n"
        "    def configure(self, **_):\n"
        "        raise BrokenPipeError(32, 'the broker hung up')\n"
    )
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(root, ["web", "broken:app", "--dsn", "postgresql://nobody"])
    assert done.exit_code == 1 and "the broker hung up" in done.stderr
