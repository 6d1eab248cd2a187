"""When events are written: soon after they were emitted, from whichever thread, and a process in
which nothing happens is not woken for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

import psycopg
import pytest

from leasework import App
from leasework.loops.recorder import Recorder
from leasework.pg.schema import migrate
from leasework.tuning import Tuning
from tests.support.wait import until_async


@pytest.fixture
async def app(dsn: str, monkeypatch: pytest.MonkeyPatch) -> App:
    # nobody sees what is not woken for within a test's time
    monkeypatch.setattr(Tuning, "event_rest_seconds", 1000.0)
    app = App(dsn)
    await migrate.apply(app.settings)
    return app


async def written(app: App) -> list[str]:
    query = b"select fields ->> 'name' from leasework.event where kind = 'callback_failed'"
    async with await psycopg.AsyncConnection.connect(app.settings.dsn) as connection:
        return sorted(name for (name,) in await (await connection.execute(query)).fetchall())


async def rests(recorder: Recorder) -> None:
    await until_async(lambda: recorder._rests and not recorder._buffer, 30, "the recorder to rest")


async def emit_from_a_thread(recorder: Recorder, *names: str) -> None:
    def emit() -> None:
        for name in names:
            recorder.emit("callback_failed", name=name, error="-")

    await asyncio.to_thread(emit)


async def test_a_workers_event_wakes_the_one_who_writes_it(app: App):
    async with app.node() as node:
        for name in ("a", "b"):
            await rests(node.recorder)
            await emit_from_a_thread(node.recorder, name)
            await until_async(lambda name=name: _has(app, name), 30, name)
    await app.close()


async def test_an_event_of_a_process_that_only_locks_is_written_as_soon(app: App):
    async with app.lock("one"):
        assert app.desk._light
        recorder = app.desk._light._recorder
        await rests(recorder)
        await emit_from_a_thread(recorder, "a")
        await until_async(lambda: _has(app, "a"), 30, "the event")
    await app.close()


async def _has(app: App, name: str) -> bool:
    return name in await written(app)


async def test_none_is_forgotten_while_others_are_written(app: App):
    """Four threads emit again and again, whether it writes, gathers or rests."""
    names = [f"{number:04}" for number in range(800)]
    async with app.node() as node:
        await rests(node.recorder)
        pause = threading.Event()

        def emit(mine: list[str]) -> None:
            for name in mine:
                node.recorder.emit("callback_failed", name=name, error="-")
                pause.wait(0.002)

        await asyncio.gather(*(asyncio.to_thread(emit, names[n::4]) for n in range(4)))

        async def all_written() -> bool:
            return await written(app) == names

        await until_async(all_written, 30, "all to be written")
    await app.close()


class _Late(deque[Any]):
    """Just when it was seen to be empty, something comes."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __bool__(self) -> bool:
        empty = not len(self)
        if empty:
            self._recorder.emit("callback_failed", name="late", error="-")
        return not empty


async def test_what_comes_when_it_has_just_looked_wakes_it(app: App):
    async with app.node() as node:
        store = node.recorder._store
        alone, woken = Recorder(app.env, store), []
        alone.wake = lambda: woken.append(True)
        alone._buffer = _Late(alone)
        assert await alone.tick(None) == 1000.0
        assert woken == [True]
        assert await alone.tick(None) == 0.5
        assert await written(app) == ["late"]
    await app.close()
