"""Runs the job of a schedule for moments of the past that did not fire."""

from __future__ import annotations

from datetime import datetime
from itertools import islice, takewhile

from leasework.env import Env
from leasework.errors import BadSchedule
from leasework.model.schedule import Spec
from leasework.store.reports import Reports
from leasework.store.store import Store
from leasework.tuning import Tuning


async def backfill(
    store: Store,
    reports: Reports,
    env: Env,
    app: str,
    name: str,
    start: datetime,
    end: datetime,
) -> list[datetime]:
    """Enqueue a job for each moment from ``start`` until before ``end`` that did not fire. Return
    these moments. Moments that the leader has not decided yet are left to it. Raises
    BadSchedule."""
    schedule, now = await reports.get_schedule(app, name), env.due_now()
    if schedule is None:
        raise no_such_schedule(name)
    for moment in (start, end):
        if not isinstance(moment, datetime) or moment.utcoffset() is None:
            raise BadSchedule("start and end must be datetimes with a time zone", got=moment)
    begin = await store.ledger_begin()
    if begin and start <= begin:
        raise BadSchedule(
            "the ledger of that time has been deleted, and nobody knows what fired",
            got=start.isoformat(),
            do=f"Begin after {begin.isoformat()}. Retention(ticks_days=…) keeps it for longer",
        )
    if end > await store.database_now(now):
        raise BadSchedule(
            "end must be in the past", got=end.isoformat(), do="End at the present time or earlier"
        )
    undecided = schedule.next_at
    if undecided is not None and undecided < end:
        if schedule.paused:
            raise BadSchedule(
                f"the moments of this paused schedule from {undecided.isoformat()} are undecided",
                got=end.isoformat(),
                do="Resume it first, so that the leader decides them, or end at that moment",
            )
        end = undecided
    spec = Spec.from_json(schedule.spec)
    wanted = takewhile(lambda moment: moment < end, spec.after(start - start.resolution))
    moments = list(islice(wanted, Tuning.backfill_ticks + 1))
    if not moments:
        return []
    if len(moments) > Tuning.backfill_ticks:
        raise BadSchedule(
            f"more than {Tuning.backfill_ticks} moments",
            do="Backfill a shorter time, then the next",
        )
    jobs = [env.new_id() for _ in moments]
    after = spec.next_after(moments[-1])
    return sorted(await store.backfill(app, name, moments, jobs, after, now))


def no_such_schedule(name: str) -> BadSchedule:
    return BadSchedule(f"no schedule is named {name!r}", do="See: leasework schedules")


def code_defines(name: str) -> BadSchedule:
    return BadSchedule(
        f"the code defines a schedule named {name!r}",
        do="Give this one another name, or take the other out of the code first",
    )
