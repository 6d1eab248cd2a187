"""The campaign's account of its own faults and processes: what failed is not shown as done."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from leasework_lab.chaos.acts import Acts, Missed
from leasework_lab.chaos.counts import count
from leasework_lab.chaos.faults import Faults
from leasework_lab.chaos.fleet import Fleet, Member, Plan
from leasework_lab.chaos.history import Writer, read
from leasework_lab.chaos.node import Duties
from leasework_lab.chaos.proxy import FaultProxy
from leasework_lab.chaos.watch import Watcher

from leasework.config import Settings
from leasework.env import ASSIGNED_NODE, GIVEN_DSN, Env, seeded
from leasework.errors import Unavailable
from tests.chaos.histories import World
from tests.support.wait import until_async


async def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    async def holds() -> bool:
        return condition()

    await until_async(holds, seconds, what)


class Asked:
    """What the faults of the database ask of the campaign's watcher."""

    row = None

    def __init__(self, broken: int | Exception) -> None:
        self._broken = broken

    async def break_half(self, which: int) -> int:
        if isinstance(self._broken, Exception):
            raise self._broken
        return self._broken


class Alone:
    """No processes."""

    members: dict[str, Any] = {}  # noqa: RUF012
    nodes: list[Any] = []  # noqa: RUF012


def faults(broken: int | Exception) -> Faults:
    watcher: Any = Asked(broken)
    fleet: Any = Alone()
    return Faults(fleet, None, watcher, Env(), seeded(1), 6.0, ["break_half"])


async def test_a_fault_that_hits_nobody_is_none() -> None:
    some = faults(0)
    await some.run("all", 0.05, 0.02)
    assert some.done == [] and some.acts.errors == []


async def test_a_fault_of_which_nobody_knows_whether_it_hit_excuses_and_does_not_count() -> None:
    some = faults(Unavailable("gone"))
    await some.run("all", 0.05, 0.1)
    assert [(fault.kind, fault.counted) for fault in some.done] == [("backends ended", False)]
    world = World()
    world.campaign.faults = some.done
    assert count(world.campaign, world.tables).faults == 0


async def test_an_error_of_the_campaign_itself_ends_it() -> None:
    with pytest.raises(ZeroDivisionError):
        await faults(ZeroDivisionError()).run("all", 0.05, 0.1)


async def test_what_was_done_and_then_called_off_counts() -> None:
    acts = Acts(Env())
    begun = asyncio.Event()

    async def hole() -> None:
        async with acts.acting("hole", None):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(acts.quietly(hole))
    await begun.wait()
    task.cancel()
    await task
    [fault] = acts.done
    assert fault.counted and fault.end < float("inf")


async def test_what_missed_is_forgotten_and_its_target_free_again() -> None:
    acts = Acts(Env())
    async with acts.acting("kill", None):
        raise Missed
    assert acts.done == []


async def test_a_place_whose_keeper_broke_is_told_at_the_stop(tmp_path: Path) -> None:
    nothing: Any = None
    settings = Settings(dsn="host=/nowhere")
    plan = Plan(nodes=1, producers=0, child=(str(tmp_path / "missing"),))
    fleet = Fleet(settings, plan, tmp_path, nothing, Env(), seeded(1))
    await fleet.start()
    try:
        await until(lambda: fleet.members["node1"].started == 1, 10, "the keeper")
        with pytest.raises(FileNotFoundError):
            await fleet.stop("node")
    finally:
        await fleet.end()


async def test_the_exit_status_of_what_was_stopped_is_kept(tmp_path: Path) -> None:
    certifier: Any = Certified()
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(3));"
        " print('up', flush=True); signal.pause()"
    )
    plan = Plan(nodes=1, producers=0, child=(sys.executable, "-c", script))
    settings = Settings(dsn="host=/nowhere")
    fleet = Fleet(settings, plan, tmp_path, certifier, Env(), seeded(1))
    await fleet.start()
    log = tmp_path / "node1.1.log"
    await until(lambda: log.exists() and log.read_text() != "", 10, "the process")
    await fleet.stop("node")
    await fleet.end()
    [process] = fleet.processes
    assert (process.how, process.code, process.hard_exit) == ("stopped", 3, True)


async def test_duties_that_break_say_so_in_the_history(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "lines", Env())
    chaos: Any = SimpleNamespace(app=SimpleNamespace(env=Env()))
    node: Any = SimpleNamespace(guard=SimpleNamespace(term=lambda: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        await Duties(chaos, node, writer).run()
    [line] = read(tmp_path / "lines")
    assert line["kind"] == "duties_broke" and "ZeroDivisionError" in line["error"]


async def test_somebodys_worker_is_told_all_that_we_were_and_no_password_in_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NAME": "shop", "NODE_ID": "mine:1", "DSN": "host=theirs"}.items():
        monkeypatch.setenv(f"LEASEWORK_{name}", value)
    nothing: Any = None
    settings = Settings(dsn="host=/nowhere password=hush", schema="theirs")
    plan = Plan(nodes=1, producers=0, target="shop.jobs:app")
    fleet = Fleet(settings, plan, tmp_path, nothing, Env(), seeded(1))
    link = FaultProxy(settings.dsn)
    member = Member("node1", "node", link, None)
    command, environ = fleet._command(member, "node1.1"), fleet._environ(link.dsn)
    await link.close()
    assert "hush" not in " ".join(command) and "--schema=theirs" in command
    assert environ["LEASEWORK_NAME"] == "shop" and ASSIGNED_NODE not in environ
    assert environ["LEASEWORK_DSN"] == environ[GIVEN_DSN] == link.dsn != settings.dsn
    own = Fleet(settings, Plan(), tmp_path, nothing, Env(), seeded(1))._environ(link.dsn)
    assert "LEASEWORK_NAME" not in own and GIVEN_DSN not in own


async def test_a_watcher_that_broke_is_told_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Watcher, "_ask", broken)
    watcher = Watcher(Settings(dsn="host=/nowhere"), "chaos", Env())
    watcher.start()
    await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError):
        await watcher.stop()


class Certified:
    def report(self, node: object, how: str) -> None:
        """Nobody is to know."""
