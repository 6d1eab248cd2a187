"""What is read at the end, in a database that had jobs before the campaign."""

from __future__ import annotations

from leasework_lab.chaos.tables import ChaosSession

from leasework import App
from leasework.config import Settings
from leasework.pg.schema import migrate


async def test_only_the_jobs_that_were_made_since_it_began_are_judged(direct_dsn: str) -> None:
    settings = Settings(dsn=direct_dsn)
    await migrate.apply(settings)
    app = App(direct_dsn)

    @app.task
    async def work() -> None:
        """Never run."""

    session = await ChaosSession.open(settings, "chaos")
    try:
        await app.enqueue(work.job())
        began = await session.clock()
        new = await app.enqueue(work.job())
        assert [job.id for job in (await session.final(0, began)).jobs] == [new.id]
    finally:
        await session.close()
        await app.close()
