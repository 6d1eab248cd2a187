"""What the simulated database does with a job's deadlines: it sets them when the job is inserted,
moves them with it, and judges them when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from leasework.errors import BadDeadline
from leasework.ports import EventView

if TYPE_CHECKING:
    from leasework_lab.sim.rows import DeadlineRow, JobRow, SimDatabase

FEW_RUNS = 3
RUNS_KEPT = 1000


def set_deadlines(
    db: SimDatabase,
    job: JobRow,
    wanted: Sequence[dict[str, Any]],
    moment: datetime,
    tick: datetime | None = None,
) -> Callable[[], None]:
    """Like ``leasework.deadline_set``. Returns a function that undoes it. ``wanted``: from
    ``Level.as_json``. ``tick``: stands for the job's own tick."""
    from leasework_lab.sim.rows import DeadlineRow

    rows: dict[Any, DeadlineRow] = {}
    tick = tick or job.tick_at
    for place, level in enumerate(wanted, 1):
        since, seconds = level["since"], float(level["seconds"])
        span = timedelta(seconds=seconds)
        if since == "tick" and tick is None:
            raise BadDeadline("a deadline since tick needs the job of a schedule")
        due = {
            "enqueued": moment + span,
            "scheduled": (tick or job.run_at) + span,
            "tick": (tick or moment) + span,
            "fixed": datetime.fromisoformat(level["at"]) if "at" in level else None,
        }.get(since)
        if since == "fixed" and tick is None and due is not None and due <= moment:
            raise BadDeadline("a deadline lies in the past", got=due)
        state = "waiting" if due is None else "armed"
        rows[job.id, place] = DeadlineRow(
            job.id, place, True, level.get("name") or job.task, since, seconds, level["until"],
            level["on_cancel"], level["on_breach"], moment, state, due, job.schedule, tick,
            level.get("runs"), level.get("factor", 1.0),
        )  # fmt: skip
    new = {key: row for key, row in rows.items() if key not in db.deadlines}
    db.deadlines.update(new)
    job.deadlines = True

    def undo() -> None:
        for key in new:
            del db.deadlines[key]

    return undo


def move(db: SimDatabase, job: JobRow) -> None:
    """Like ``leasework.deadline_moved``."""
    for row in db.deadlines.values():
        if row.id == job.id and row.since == "scheduled" and row.state == "armed":
            row.due_at = job.run_at + timedelta(seconds=row.seconds)


def tell(db: SimDatabase, row: DeadlineRow, kind: str, level: str, **more: Any) -> None:
    """Write an event in the same step as the verdict."""
    assert row.closed_at is not None and row.due_at is not None
    db.last_event += 1
    fields = {
        "deadline": str(row.id),
        "level": row.level,
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


def judge(
    db: SimDatabase, job: JobRow, ended: str, moment: datetime, began: datetime | None
) -> None:
    """Like the trigger ``judge``: a job with deadlines has ended."""
    rows = [row for row in db.deadlines.values() if row.id == job.id]
    for row in rows:
        holds = {"completed": True, "cancelled": row.on_cancel == "cancel"}
        ends = holds.get(ended, row.until == "finished")
        if row.state == "waiting" or (row.state == "armed" and ends):
            gone = row.state == "waiting" or ended == "cancelled"
            row.state = "cancelled" if gone else "met"
            row.closed_at, row.job_state = moment, ended
            tell_late(db, row)
    if ended == "completed" and any(row.since == "average" for row in rows):
        seconds = (moment - (began or job.claimed_at or moment)).total_seconds()
        db.run_times.setdefault(job.task, []).append((moment, job.id, seconds))
