"""What the simulated database does with a job's deadline: it sets it when the job is inserted,
moves it with the job, and judges it when the job ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from leasework.errors import BadDeadline
from leasework.store.rows import EventView

if TYPE_CHECKING:
    from leasework_lab.sim.rows import DeadlineRow, JobRow, SimDatabase


def set_deadline(
    db: SimDatabase,
    job: JobRow,
    promise: dict[str, Any],
    moment: datetime,
    tick: datetime | None = None,
) -> Callable[[], None]:
    """Like ``leasework.deadline_set``. Returns a function that undoes it. ``promise``: from
    ``Promise.as_json``. ``tick``: stands for the job's own tick."""
    from leasework_lab.sim.rows import DeadlineRow

    tick = tick or job.tick_at
    since, seconds = promise["since"], float(promise["seconds"])
    span = timedelta(seconds=seconds)
    if since == "tick" and tick is None:
        raise BadDeadline("a deadline since tick needs the job of a schedule")
    due = {
        "enqueued": moment + span,
        "scheduled": (tick or job.run_at) + span,
        "tick": (tick or moment) + span,
        "fixed": datetime.fromisoformat(promise["at"]) if "at" in promise else None,
    }.get(since)
    if since == "fixed" and tick is None and due is not None and due <= moment:
        raise BadDeadline("a deadline lies in the past", got=due)
    job.deadlines = True
    if job.id in db.deadlines:
        return lambda: None
    db.deadlines[job.id] = DeadlineRow(
        job.id, True, promise.get("name") or job.task, since, seconds, promise["until"],
        promise["on_breach"], moment, "armed" if due else "waiting", due, job.schedule, tick,
    )  # fmt: skip

    def undo() -> None:
        del db.deadlines[job.id]

    return undo


def move(db: SimDatabase, job: JobRow) -> None:
    """Like ``leasework.deadline_moved``."""
    row = db.deadlines.get(job.id)
    if row and row.since == "scheduled" and row.state == "armed":
        row.due_at = job.run_at + timedelta(seconds=row.seconds)


def tell(db: SimDatabase, row: DeadlineRow, kind: str, level: str, **more: Any) -> None:
    """Write an event in the same step as the verdict."""
    assert row.closed_at is not None and row.due_at is not None
    db.last_event += 1
    fields = {
        "deadline": str(row.id),
        "name": row.name,
        "job": str(row.id) if row.of_job else None,
        "due": iso(row.due_at),
        "late": round((row.closed_at - row.due_at).total_seconds(), 3),
        **more,
    }
    db.events.append(EventView(db.last_event, row.closed_at, kind, level, None, fields))


def tell_late(db: SimDatabase, row: DeadlineRow) -> None:
    """Like ``leasework.deadline_tell_late``."""
    if row.state == "met" and row.due_at and row.closed_at and row.due_at < row.closed_at:
        tell(db, row, "deadline_late", "warning")


def iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment else None


def judge(db: SimDatabase, job: JobRow, ended: str, moment: datetime) -> None:
    """Like the trigger ``judge``: a job with a deadline has ended."""
    row = db.deadlines.get(job.id)
    ends = ended in ("completed", "cancelled") or (row and row.until == "finished")
    if row and (row.state == "waiting" or (row.state == "armed" and ends)):
        gone = row.state == "waiting" or ended == "cancelled"
        row.state = "cancelled" if gone else "met"
        row.closed_at, row.job_state = moment, ended
        tell_late(db, row)
