"""Errors that users and operators see say what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from leasework import App
from leasework.errors import LeaseworkError

NOBODY = UUID(int=1)
Call = Callable[[App], Awaitable[Any]]


async def both_locks(app: App) -> None:
    async with app.lock("a"), app.lock("a", timeout=0.01):
        raise AssertionError("two holders")


async def wrong_scope(app: App) -> None:
    app.advisory_lock("a", scope="sesion")  # type: ignore[arg-type]


async def no_token(app: App) -> None:
    print(app.lock("a").token)


CALLS: dict[str, Call] = {
    "cancel a job": lambda app: app.cancel(NOBODY),
    "not an id": lambda app: app.get("no id"),
    "wait in vain": lambda app: both_locks(app),
    "wrong scope": wrong_scope,
    "read the token of nothing": no_token,
    "delete a schedule": lambda app: app.schedules.delete("a"),
}


@pytest.mark.parametrize("what", CALLS)
async def test_an_application_is_told_what_to_do(app: App, what: str) -> None:
    with pytest.raises(LeaseworkError) as raised:
        await CALLS[what](app)
    assert raised.value.do


async def test_an_operator_is_told_what_to_do(app: App) -> None:
    operator = await app.operator("kim", "cli")
    for act in (
        lambda: operator.cancel(NOBODY),
        lambda: operator.retry(NOBODY),
        lambda: operator.discard(NOBODY),
        lambda: operator.ask_stack(NOBODY),
        lambda: operator.job_named("00000000"),
        lambda: operator.run_now("a", app.settings.name),
        lambda: operator.remove_schedule("a", app.settings.name),
        lambda: operator.halt("nobody"),
        lambda: operator.pause("a", app.settings.name),
    ):
        with pytest.raises(LeaseworkError) as raised:
            await act()
        assert raised.value.do
