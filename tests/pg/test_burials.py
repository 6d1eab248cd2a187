"""The leader declares silent nodes dead, each for itself."""

from __future__ import annotations

from uuid import UUID

import psycopg

from leasework import App
from leasework.model.states import State
from leasework.store.nodes import NodeIdentity
from tests.pg.bench import Bench
from tests.support.wait import until_async

LOCKED = (UUID(int=1), UUID(int=2), UUID(int=(1 << 128) - 1))


async def test_a_node_whose_row_is_locked_does_not_keep_others_from_being_declared_dead(
    app: App, migrated: str
) -> None:
    @app.task(name="t")
    async def t() -> None: ...

    store = await app.store()
    for node in LOCKED:
        identity = NodeIdentity(node, "a", "r", "host", 1, "0", True, ("t",), {"default": 1})
        await store.register(identity, 1.0, None)
    async with (
        await psycopg.AsyncConnection.connect(migrated) as user,
        await psycopg.AsyncConnection.connect(migrated) as holder,
    ):
        await holder.execute("select 1 from leasework.node for key share")
        bench = await Bench.make(store, user, lease=1.0)
        early = await bench.claimed()
        async with app.node():

            async def done() -> bool:
                return await bench.state(early.id) is State.COMPLETED

            await until_async(done, 60, "the job of the dead node to run again")
            left = await user.execute("select id from leasework.node where app = 'a' order by id")
            assert await left.fetchall() == [(node,) for node in LOCKED]
