"""Which handlers a child process can import, and what the others are told."""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable

import pytest

from leasework.errors import BadJob
from leasework.jobs.process import check_importable
from tests.services import process_handlers as handlers, process_unimportable
from tests.services.test_process_executor import Bench, failure, idle_pids


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.pool.close()


def _in_main() -> Callable[[], None]:
    def handler() -> None: ...

    handler.__module__, handler.__qualname__ = "__main__", "handler"
    return handler


def _local() -> Callable[[], None]:
    def handler() -> None: ...

    return handler


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_in_main(), "cannot import what the main script defines"),
        (_local(), "a lambda or a function inside another one"),
        (lambda: None, "a lambda or a function inside another one"),
        (functools.partial(handlers.add, 1), "it needs a plain function"),
        (Bench, "it needs a plain function"),
    ],
)
def test_a_function_that_no_child_could_import_is_refused(function, why):
    with pytest.raises(BadJob, match=why) as caught:
        check_importable(function)
    assert "Got: " in str(caught.value) and caught.value.do
    check_importable(handlers.add)


async def test_at_run_time_the_refusal_is_a_failure_that_says_what_to_do(bench):
    text = failure(await bench.run(_local()))
    assert "a child process cannot find" in text and "at the top of a module" in text
    text = failure(await bench.run(handlers.first))
    assert "now means another function" in text and "process_handlers.shadowed" in text
    lost = handlers.nothing.__code__.replace(co_name="lost")
    function = type(handlers.nothing)(lost, vars(handlers), "lost")
    function.__qualname__ = "lost"
    assert "has no function lost" in failure(await bench.run(function))
    assert idle_pids(bench.pool) == []


async def test_a_module_that_fails_in_the_child_fails_the_job(bench, monkeypatch):
    monkeypatch.setenv("BREAK_THE_IMPORT", "1")
    text = failure(await bench.run(process_unimportable.handler))
    assert text.startswith("ImportError: this module does not want to")
    assert len(idle_pids(bench.pool)) == 1


async def test_a_system_that_cannot_watch_children_is_named(bench, monkeypatch):
    monkeypatch.delattr(os, "waitid")
    assert "needs Linux, or Python 3.13 on macOS" in failure(await bench.run(handlers.nothing))
