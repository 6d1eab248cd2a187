"""leasework's tables."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from bench.sql import one


def unfinished(watcher: Any, dsn: str) -> bool:
    return bool(one(watcher, "select exists (select from leasework.job)"))


def newest(watcher: Any) -> Any:
    return one(watcher, "select leasework.new_id()")


def unfinished_since(watcher: Any, newest: Any) -> bool:
    query = "select (select id from leasework.job where id > %s order by id limit 1) is not null"
    return bool(one(watcher, query, newest))


def finished(watcher: Any, dsn: str) -> int | None:
    return int(
        one(
            watcher,
            "select count(*) from leasework.job_done where state = 'completed' and attempt = 1",
        )
    )


_FILL = """
insert into leasework.job (id, queue, task_name, payload, ready, held_because, run_at)
select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'default', 'noop',
       jsonb_build_object('n', n, 'text', repeat('x', 80)), {ready}, {why}, {run_at}
from generate_series(0, %s - 1) n
"""


def fill_ready(watcher: Any, rows: int) -> None:
    watcher.execute(_FILL.format(ready="true", why="null", run_at="now()"), [rows])


def wake(watcher: Any) -> None:
    watcher.execute("select leasework.wake(array['default'])")


def fill_waiting(watcher: Any, rows: int) -> None:
    later = "now() + interval '1 day' + n * interval '1 ms'"
    watcher.execute(_FILL.format(ready="false", why="'scheduled'", run_at=later), [rows])


def track_claims(watcher: Any) -> None:
    """In the sessions that begin from now on."""
    alter = "alter database %I set track_functions = pl"
    watcher.execute(f"do $$ begin execute format('{alter}', current_database()); end $$")


def claims(watcher: Any) -> tuple[int, float]:
    """How many claims there were, and their milliseconds in the server."""
    row = watcher.execute(
        "select coalesce(sum(calls), 0), coalesce(sum(total_time), 0) from pg_stat_user_functions"
        " where schemaname = 'leasework' and funcname = 'claim'"
    ).fetchone()
    return int(row[0]), float(row[1])


def ready_left(watcher: Any) -> bool:
    return bool(one(watcher, "select exists (select from leasework.job where ready)"))


def settle(watcher: Any) -> None:
    """Workers that left held nothing: nobody needs to look for their jobs."""
    watcher.execute("update leasework.death set settled = true where not settled")


def running(watcher: Any) -> list[UUID]:
    """The ids of the jobs that run."""
    rows = watcher.execute("select id from leasework.job where node is not null").fetchall()
    return [row[0] for row in rows]


def done(watcher: Any, jobs: list[UUID]) -> int:
    """How many of these jobs have finished."""
    return int(one(watcher, "select count(*) from leasework.job_done where id = any (%s)", jobs))


def multiply(watcher: Any, table: str, due: int, later: int, spread: float) -> None:
    """The rows of the samples ``due`` and ``later``, so many times; the samples go. The moments are
    spread over so many seconds."""
    for name, count in (("due", due), ("later", later)):
        step = spread / max(1, count)
        watcher.execute(_COPIES[table], {"name": name, "count": count, "step": step})
    watcher.execute(f"delete from leasework.{table} where name in ('due', 'later')")
    watcher.execute(f"vacuum analyze leasework.{table}")


_COPIES = {
    "schedule": """
insert into leasework.schedule (app, name, spec, described, task_name, job, missed, grace_seconds,
                                release, next_at)
select s.app, s.name || '-' || n, s.spec, s.described, 'noop',
       jsonb_set(s.job, '{payload,n}', to_jsonb(n)), s.missed, s.grace_seconds, s.release,
       s.next_at + n * make_interval(secs => %(step)s)
from leasework.schedule s, generate_series(0, %(count)s - 1) n where s.name = %(name)s
""",
    "deadline": """
insert into leasework.deadline (id, of_job, name, state, since, seconds, until, due_at, callback,
                                made_at)
select leasework.new_id(), d.of_job, d.name || '-' || n, d.state, d.since, d.seconds, d.until,
       d.due_at + n * make_interval(secs => %(step)s), d.callback, d.made_at
from leasework.deadline d, generate_series(0, %(count)s - 1) n where d.name = %(name)s
""",
}

# a row a job: what it is of, and the seconds from its moment to its insertion, or to the verdict
_LATE = {
    "schedule": "select schedule as of, extract(epoch from created_at - tick_at) as late"
    " from leasework.job_done",
    "deadline": "select d.id as of, extract(epoch from d.closed_at - d.due_at) as late"
    " from leasework.deadline d"
    " join leasework.job_done j on j.payload -> 'breach' ->> 'deadline' = d.id::text",
}


def lateness(watcher: Any, table: str) -> tuple[int, dict[str, float]]:
    """How many schedules or deadlines have one job, and how late they are, in seconds."""
    row = watcher.execute(
        "select count(*) filter (where jobs = 1),"
        " percentile_cont(array[0.5, 0.99, 1]) within group (order by late::float8)"
        " from (select of, count(*) as jobs, max(late) as late"
        f" from ({_LATE[table]}) each group by of) o"
    ).fetchone()
    keys = ("late_p50", "late_p99", "late_max")
    return int(row[0]), dict(zip(keys, row[1] or [0.0] * 3, strict=True))


def attempts(watcher: Any) -> dict[int, int]:
    """Job → attempts that are recorded, of jobs with a limit."""
    return dict(
        watcher.execute("select (payload->>'n')::int, attempt from leasework.jobs").fetchall()
    )
