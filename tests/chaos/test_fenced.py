"""What a leader's duty in the campaign does to the fence that everybody needs."""

from __future__ import annotations

from typing import Any

from leasework_lab.chaos.app import NAME
from leasework_lab.chaos.tables import SCHEMA, ChaosSession, make_anew

from leasework.config import Settings

_FENCE = f"insert into {SCHEMA}.fence (name, token) values (%s, 7)"
_IDLE = "show idle_in_transaction_session_timeout"


async def idle(session: ChaosSession) -> Any:
    [[text]] = await (await session.connection.execute(_IDLE)).fetchall()
    return text


async def test_who_holds_the_fence_is_ended_soon_however_patient_it_was_before(
    direct_dsn: str,
) -> None:
    settings = Settings(dsn=direct_dsn, schema=SCHEMA)
    await make_anew(settings)
    session = await ChaosSession.open(settings, "chaos")
    try:
        async with session.transaction(5.0):
            await session.connection.execute(_FENCE, (NAME,))
        before = await idle(session)
        async with session.transaction(5.0):
            await session.be_patient()
            assert await idle(session) == "1min"
            assert not await session.fenced(NAME, 6), "an older term"
            assert await idle(session) == "1min", "it holds nothing"
            assert await session.fenced(NAME, 7)
            assert await idle(session) == "2s"
        assert await idle(session) == before
    finally:
        await session.close()
