"""One action on many jobs: find those that match, a batch at a time, and change them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from msgspec import structs

from leasework import errors
from leasework.env import Env
from leasework.model.filter import JobFilter
from leasework.model.states import FINISHED, WAITING, State
from leasework.store.reports import Reports
from leasework.store.store import Store
from leasework.tuning import Tuning

ACTS = ("retry", "cancel", "discard")
"""Those of the dashboard on many jobs."""
_FROM = {
    "retry": {State.SCHEDULED, State.RETRYABLE} | FINISHED,
    "cancel": WAITING | {State.RUNNING},
    "discard": WAITING | {State.QUARANTINED},
    "reprioritize": WAITING,
}
"""The states whose jobs each action changes."""
CHANGED = {
    "retry": ("waiting", "finished"),
    "cancel": ("waiting", "running"),
    "discard": ("waiting", "quarantined"),
    "reprioritize": ("waiting",),
}
"""Where the jobs were that each action has changed, as the Store answers."""


@dataclass
class BulkAction:
    """``retry``, ``cancel``, ``discard`` or ``reprioritize`` all jobs that match a filter; and what
    it has done."""

    store: Store
    reports: Reports
    env: Env
    batch_rows: int  # of one statement
    act: str
    wanted: JobFilter
    why: str  # the jobs' error
    priority: int = 0
    changed: int = 0
    held: int = 0  # skipped, because transactions held their rows
    unsure: int = 0  # no answer tells whether they were changed
    more: bool = False  # time ran out: more jobs may match

    async def run(self, seconds: float | None) -> None:
        """Stop after ``seconds`` (None: when all are changed)."""
        ends_at = math.inf if seconds is None else self.env.boot_now() + seconds
        try:
            for part in _parts(self.act, self.wanted):
                async for batch, more in self._batches(part):
                    await self._one_batch(part, batch)
                    if more and self.env.boot_now() > ends_at:
                        self.more = True
                        return
        except errors.LeaseworkError as error:
            if not getattr(error, "sent", False):
                self.unsure = 0
            if self.changed:
                before = f"Jobs changed before this error: {self.changed:,}."
                error.do, error.args = f"{error.do} {before}", (f"{error} {before}",)
            raise

    async def _one_batch(self, part: JobFilter, jobs: Sequence[UUID]) -> None:
        """Locked jobs are tried twice: most of them are claimed or completed at this moment."""
        self.unsure = len(jobs)
        where = await self._change(part, jobs)
        if locked := [job for job, place in where.items() if place == "locked"]:
            await asyncio.sleep(Tuning.locked_first_pause)
            where |= await self._change(part, locked)
        self.unsure = 0
        places = Counter(where.values())
        self.held += places["locked"]
        self.changed += sum(places[place] for place in CHANGED[self.act])

    async def _batches(self, wanted: JobFilter) -> AsyncIterator[tuple[list[UUID], bool]]:
        """The ids of the matching jobs, each once, and whether there may be more. The next are
        looked for when those before have been changed."""
        size = self.batch_rows
        remember = self.act == "retry" and wanted.state in WAITING
        seen: set[UUID] = set()  # one that fails again comes later in the order of times
        after: str | None = None
        while True:
            ids, after = await self.reports.matching(wanted, after, Tuning.step_jobs)
            fresh = [job for job in ids if job not in seen]
            for start in range(0, max(len(fresh), 1), size):  # an empty one, where nothing matches
                yield fresh[start : start + size], start + size < len(fresh) or after is not None
            if remember:
                seen.update(ids)
            if after is None:
                return

    async def _change(self, wanted: JobFilter, jobs: Sequence[UUID]) -> dict[UUID, str]:
        if not jobs:
            return {}
        now = self.env.due_now()
        if self.act == "retry":  # by its state: one that completed meanwhile stays so
            return await self.store.retry_many(jobs, now, wanted.state)
        if self.act == "reprioritize":
            return await self.store.reprioritize_many(jobs, self.priority)
        if self.act == "cancel":
            return await self.store.cancel_many(jobs, self.why, now)
        return await self.store.discard_many(jobs, self.why, now)


async def count_matching(reports: Reports, act: str, wanted: JobFilter) -> tuple[int, bool]:
    """How many jobs the action would find, and whether there may be more."""
    count, more = 0, False
    for part in _parts(act, wanted):
        after: str | None = None
        for _ in range(Tuning.preview_steps):
            ids, after = await reports.matching(part, after, Tuning.step_jobs)
            count += len(ids)
            if after is None:
                break
        more = more or after is not None
    return count, more


def acts_on(state: str | None) -> list[str]:
    """The actions of the dashboard for jobs of this state (None: of any)."""
    found = []
    for act in ACTS:
        with suppress(errors.BadFilter):
            check(act, state, may_stop=True)
            found.append(act)
    return found


def check(act: str, state: str | None, *, may_stop: bool) -> None:
    """Raises BadJob or BadFilter if the action cannot change all jobs of this state (None: of any).
    ``may_stop``: it may end before it has reached all of them."""
    if act not in _FROM:
        raise errors.BadJob("no such action", got=act[:40], do=errors.suggest(act, ACTS))
    if state is not None and state not in _FROM[act]:
        raise errors.BadFilter(
            f"{act} changes no jobs in this state",
            got=state,
            do=f"It changes jobs that are {', '.join(sorted(map(str, _FROM[act])))}",
        )
    if act == "retry" and state is None:
        raise errors.BadFilter(
            "without a state, this filter also finds completed jobs, which would run again",
            do="Add a state, such as state:discarded",
        )
    if act == "retry" and state == State.COMPLETED and may_stop:
        raise errors.BadFilter(
            "the dashboard may stop before the last job, and would then begin with the first again",
            do="Use the command, which has no time limit: leasework jobs retry --where …",
        )


def _parts(act: str, wanted: JobFilter) -> list[JobFilter]:
    """Return the filter without the finished jobs that the action cannot change."""
    if wanted.state is not None:
        return [wanted]
    unfinished = structs.replace(wanted, unfinished=True)
    quarantined = structs.replace(wanted, state=State.QUARANTINED)
    both = act == "discard" and State.QUARANTINED not in wanted.not_states
    return [unfinished, quarantined] if both else [unfinished]


def skipped_by(done: BulkAction) -> str:
    """What an action on many jobs has skipped, in a sentence; empty if nothing."""
    if not done.held:
        return ""
    if done.held == 1:
        return "1 job was skipped because a transaction holds its row."
    return f"{done.held:,} jobs were skipped because transactions hold their rows."
