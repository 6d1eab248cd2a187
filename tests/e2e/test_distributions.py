"""The two wheels, as `pip install` gives them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.arch import tree
from tests.support.postgres import quick_place

RUN = "import sys; sys.path[:0] = {paths!r}; from leasework.cli import main; main()"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """By the distribution's name."""
    folder = tmp_path_factory.mktemp("wheels")
    for source in (tree.ROOT, tree.ROOT / "lab"):
        pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory) -> Path:
    """What leasework needs from others, and nothing of leasework."""
    folder = tmp_path_factory.mktemp("dependencies")
    for kind in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(kind)).iterdir():
            link = folder / entry.name
            if not entry.name.startswith(("leasework", "_leasework", "__")) and not link.exists():
                link.symlink_to(entry)
    return folder


def pip(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "-q", *words], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def leasework(folder: Path, dependencies: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as it is installed in ``folder``."""
    program = RUN.format(paths=[str(folder), str(dependencies)])
    command = [sys.executable, "-I", "-S", "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=100)


def test_the_core_alone_names_the_distribution_that_has_the_other_commands(
    wheels, dependencies, tmp_path
):
    pip("install", "--no-deps", "--target", str(tmp_path), str(wheels["leasework"]))
    for name in ("bench", "chaos", "demo", "sim"):
        done = leasework(tmp_path, dependencies, name, "--help")
        assert done.returncode == 2
        assert "comes with leasework-lab" in done.stderr
    told = leasework(tmp_path, dependencies, "--help")
    assert told.returncode == 0 and "worker" in told.stdout and "chaos" not in told.stdout


def test_the_laboratory_adds_its_commands(wheels, dependencies, tmp_path):
    for wheel in wheels.values():
        pip("install", "--no-deps", "--target", str(tmp_path), str(wheel))
    told = leasework(tmp_path, dependencies, "--help")
    assert all(f"\n  {name} " in told.stdout for name in ("bench", "chaos", "demo", "sim"))
    done = leasework(tmp_path, dependencies, "sim", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert "every invariant held" in done.stdout


def test_no_file_is_in_both_wheels(wheels):
    core, lab = (set(zipfile.ZipFile(wheels[n]).namelist()) for n in ("leasework", "leasework_lab"))
    assert not core & lab
    assert not [name for name in core if name.startswith("leasework_lab")]
    assert [name for name in lab if name.endswith("sql/chaos/effect.sql")]


FROM_A_ZIP = """
import asyncio, ctypes, sys
sys.path[:0] = {paths!r}
from leasework import App
from leasework.embedded import EmbeddedServer
from leasework.node.watchdog import Watchdog

async def main(dsn):
    import httpx
    from leasework.web import dashboard
    app = App(dsn)
    work = app.task(name="work")(lambda: 7)
    await app.apply_schema()
    async with app.node():
        print("result", await (await work.enqueue()).wait(60))
    site = dashboard(app, unprotected=True)
    transport = httpx.ASGITransport(site)
    async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
        answer = await client.get("/static/icon.svg")
        print("static", answer.status_code, answer.headers["content-type"])
        print("page", (await client.get("/now")).status_code)
    await app.close()

with EmbeddedServer.start({data!r}) as server:
    asyncio.run(main(server.dsn))
dog = Watchdog(0.4, lambda kind, **fields: print(kind, fields))
dog.put_off(1.0)
print("holds the GIL", flush=True)
ctypes.PyDLL(None).sleep(60)
"""


def test_it_works_from_a_zip_file_and_a_process_that_holds_its_gil_is_killed(wheels):
    folder = Path(tempfile.mkdtemp(prefix="lh-test-", dir=quick_place()))
    folder.chmod(0o711)
    try:
        program = FROM_A_ZIP.format(
            paths=[str(wheels["leasework"]), sysconfig.get_path("purelib")],
            data=str(folder / "data"),
        )
        command = [sys.executable, "-I", "-S", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=100)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.stdout.splitlines() == [
        "result 7", "static 200 image/svg+xml", "page 200", "holds the GIL",
    ], done.stderr  # fmt: skip
    assert done.returncode == -signal.SIGKILL
