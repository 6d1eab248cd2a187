"""Builds with one protection taken out. The oracle must catch each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.limits_fire.builds import Pairs, break_function


@dataclass(frozen=True)
class Build:
    """``functions``: pairs of texts in functions of the schema; ``script``: SQL for the database;
    ``sql``: pairs in statements; ``patch``: for the code of a worker."""

    name: str
    takes_out: str
    functions: tuple[tuple[str, Pairs], ...] = ()
    script: str = ""
    sql: tuple[tuple[str, Pairs], ...] = ()
    patch: Callable[[], None] | None = None


_CLAIM = "and j.claim_token = a.token and j.node = %(node)s\n                  for key share"
_NO_CLAIM = "and %(node)s::uuid is not null"
_MINE = (
    "and claim_token = cast(%(token)s as bigint) and node = cast(%(node)s as uuid)\n"
    "    for key share"
)
_NOT_MINE = "and cast(%(token)s as bigint) > 0 and cast(%(node)s as uuid) is not null"
_BATCH_LOCKED = r"order by x\.made_at for update skip locked"
_LATER = """
create table fire.later (callback jsonb);
create or replace function leasework.call_back(
    callback jsonb, called text, info jsonb, label text, clock timestamptz)
returns void language plpgsql volatile as $$
begin
    if callback is not null and called is not null then
        insert into fire.later
        values (jsonb_build_object('payload', jsonb_build_object(called, info)) || callback);
    elsif callback is not null then
        perform leasework.enqueue(callback, clock);
    end if;
end $$;
"""
_KEEPS = """
create or replace function leasework.keeps_claim(of_job uuid, of_token bigint, its_node uuid)
returns boolean language sql stable return true;
"""
_NEVER = """
create or replace function leasework.has_come(of_job uuid, waits text) returns boolean
language sql stable return false;
"""


def _two_commits() -> None:
    from leasework.pg.users.user import UserConnections

    record = UserConnections.record_step

    async def committed_before(
        self: UserConnections, connection: Any, node: Any, item: Any
    ) -> None:
        commit = connection.commit()
        if asyncio.iscoroutine(commit):
            await commit
            await asyncio.sleep(0.01)
        await record(self, connection, node, item)

    UserConnections.record_step = committed_before  # type: ignore[method-assign]


def _call_later() -> None:
    from leasework.store.durable import DurableStore

    end = DurableStore.end_batches

    async def ends(self: Any, now: Any) -> Any:
        answer = await end(self, now)
        async with await psycopg.AsyncConnection.connect(
            self.pool._settings.dsn, autocommit=True
        ) as connection:
            rows = await connection.execute("delete from fire.later returning callback::text")
            for (callback,) in await rows.fetchall():
                await asyncio.sleep(0.02)
                await connection.execute("select leasework.enqueue(%s)", [callback])
        return answer

    DurableStore.end_batches = ends  # type: ignore[method-assign]


BUILDS = (
    Build(
        "silent-signal", "a signal does not lock and change the job's row",
        (("send_signal", (
            (r"(from leasework\.job j where j\.id = to_job) for no key update", r"\1"),
            (r"update leasework\.job j set run_at = j\.run_at where j\.id = to_job;", ""))),),
    ),
    Build("deaf-ack", "a suspension does not look whether the wait has come", script=_NEVER),
    Build(
        "double-end", "two processes end a batch at the same time",
        (("end_batches", (
            (_BATCH_LOCKED, "order by x.made_at"),
            (r"-- a row that somebody's", "perform pg_sleep(0.005); -- a row that somebody's"))),),
    ),
    Build(
        "early-end", "a batch ends while its last jobs run",
        (("end_batches", (
            (r"where j\.batch = x\.id\)", "where j.batch = x.id and j.node is null)"),
            ("continue when again;", ""))),),
    ),
    Build(
        "late-record", "a step is recorded without a look at its claim",
        sql=(("step/record", ((_CLAIM, _NO_CLAIM),)), ("user/step", ((_MINE, _NOT_MINE),))),
    ),
    Build("lost-claim", "a lost claim waits, and makes jobs", script=_KEEPS),
    Build("two-commits", "an effect is committed before its record", patch=_two_commits),
    Build(
        "again", "a step makes its jobs at each start",
        (("gather", (
            (r"if found then", "if found then null; end if; if true then"),
            (r"make_batch\(batch,",
             "make_batch(case when found then batch else leasework.new_id() end,"))),),
    ),
    Build(
        "taken-only", "a signal is taken, and its step is not recorded",
        (("wait_in_step", ((r"if came or s\.until <= moment then",
           "if came then s.open := false; s.result := taken; elsif s.until <= moment then"),)),),
    ),
    Build(
        "calls-later", "a batch calls after its end was committed",
        script=_LATER, patch=_call_later,
    ),
    Build(
        "no-lane", "a job resumes outside its lane",
        (("resume", ((
            r"ready = lane is null, held_because = case when lane is not null then 'limit' end",
            "ready = true, held_because = null"),)),),
    ),
    Build(
        "stubborn", "a job that is being cancelled makes others",
        (("gather", ((
            r"if \(select j\.cancel_requested from leasework\.job j where j\.id = of_job\)",
            "if false"),)),),
    ),
    Build(
        "any-order", "results of children come as they ended",
        (("gathered", ((r"order by d\.id", "order by d.finished_at"),)),),
    ),
)  # fmt: skip
BY_NAME = {build.name: build for build in BUILDS}


def apply_to_process(name: str) -> None:
    """Break the statements and the code of this process. Ends it if a text is not there."""
    from tests.mutants.launch import break_statements

    if name:
        build = BY_NAME[name]
        break_statements(dict(build.sql))
        if build.patch:
            build.patch()


def apply_to_database(name: str, connection: psycopg.Connection[Any]) -> None:
    if name:
        for function, pairs in BY_NAME[name].functions:
            break_function(connection, function, pairs)
        connection.execute(BY_NAME[name].script.encode())
