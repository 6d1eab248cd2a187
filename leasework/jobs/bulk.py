"""Jobs with ids, which are made while the database inserts earlier jobs.

The same is true of jobs from a generator. Until all are known, only numbers and text are kept: many
objects would make the garbage collector scan the whole process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from itertools import islice
from typing import Any
from uuid import UUID

from leasework import errors
from leasework.env import id_of
from leasework.model.job import BulkJob, JobOptions, JobRequest
from leasework.tuning import Tuning

Pair = tuple[UUID, JobRequest[Any]]


class CannotCopy(Exception):
    """COPY cannot continue while its transaction is open: a job is not plain, the generator is
    slow, or it raised an error. Call ``all``, which raises that error, and start again."""


class Numbered(Sequence[Pair]):
    """Jobs and their ids. An id never changes, so that a try with an unknown result can be
    repeated. ``new_numbers`` makes ids, as numbers; ``most`` is the number of jobs allowed.

    Raises BadJob, at once or while it is read, for too many jobs or for something that is not a
    job. A generator always runs in one copy of its caller's context.
    """

    def __init__(
        self,
        requests: Iterable[JobRequest[Any]],
        new_numbers: Callable[[int], list[int]],
        most: int,
        clock: Callable[[], float],
    ) -> None:
        self._new_numbers = new_numbers
        self._limit = most
        self._clock = clock
        self._options: list[JobOptions] = []
        self._payloads: list[str] = []
        self._traces: list[str | None] = []
        self._numbers: list[int] = []
        self._plain = True
        self._waited = 0.0
        self.failed: BaseException | None = None
        """The generator's error, or the error in what it yielded. No job is enqueued then."""
        self._whole = not isinstance(requests, Iterator)
        if isinstance(requests, Iterator):
            self._source = requests
            self._context = copy_context()
            self._pull(Tuning.bulk_block_jobs)
            if self._slow:
                self.all()
        else:
            self._add(list(requests))  # now, because the caller may change it later

    @property
    def most(self) -> int:
        """The number of jobs, or its upper limit if it is not known yet."""
        return self._known if self._whole else self._limit

    @property
    def most_bytes(self) -> int:
        """Bytes of all arguments, or an upper limit if the rest is like the known jobs."""
        return sum(map(len, self._payloads)) * self.most // max(1, self._known)

    def can_be_copied(self, least: int) -> bool:
        """Return whether the known jobs are at least ``least``, and all plain."""
        return self._known >= least and self._plain

    def all(self) -> None:
        """Read the generator to its end. Raises the generator's error."""
        if not self._whole:
            self._pull(self._limit - self._known + 1)

    def stop(self) -> None:
        """Read no more from the generator: the caller has gone."""
        if not self._whole and self.failed is None:
            self.failed = asyncio.CancelledError()

    def traced(self, trace: str) -> None:
        """Set the trace context of all jobs."""
        self.all()
        self._traces = [trace] * self._known

    def numbers(self) -> list[int]:
        """The ids of all jobs, as numbers (see ``id_of``)."""
        self.all()
        self._make_numbers(self._known)
        return self._numbers

    def options(self) -> list[JobOptions]:
        """The options of all jobs."""
        self.all()
        return self._options

    def copied(self) -> Iterator[BulkJob]:
        """Yield the rows for a COPY. Raises CannotCopy."""
        given = 0
        while given < self._known or not self._whole:
            if given == self._known:
                self._pull_in_time()
            last = min(given + Tuning.bulk_block_jobs, self._known)
            yield from self._block(given, last)
            given = last

    def __len__(self) -> int:
        self.all()
        return self._known

    def __getitem__(self, which: Any) -> Any:
        """Return one pair, or a list for a slice."""
        if not isinstance(which, int):
            return list(self)[which]
        number = self.numbers()[which]
        options, payload, trace = self._options[which], self._payloads[which], self._traces[which]
        return id_of(number), JobRequest.of(options, payload, trace)

    def __iter__(self) -> Iterator[Pair]:
        self.all()
        for first in range(0, self._known, Tuning.bulk_block_jobs):
            block = self._block(first, min(first + Tuning.bulk_block_jobs, self._known))
            for number, options, payload, trace in block:
                yield id_of(number), JobRequest.of(options, payload, trace)

    @property
    def _known(self) -> int:
        return len(self._payloads)

    def _block(self, first: int, last: int) -> Iterator[BulkJob]:
        self._make_numbers(last)
        these = slice(first, last)
        fields = self._numbers, self._options, self._payloads, self._traces
        return zip(*(field[these] for field in fields), strict=True)

    def _make_numbers(self, count: int) -> None:
        """Make ids for the first ``count`` jobs."""
        if count > len(self._numbers):
            self._numbers += self._new_numbers(count - len(self._numbers))

    def _pull(self, count: int) -> None:
        """Read up to ``count`` more jobs."""
        while count > 0 and not self._whole:
            began = self._clock()
            asked = min(count, Tuning.generator_jobs)
            self._whole = self._take(asked) < asked
            self._waited += self._clock() - began
            count -= asked

    def _take(self, count: int) -> int:
        """Read up to ``count`` jobs and return how many there were. An error is kept, because a
        generator that has raised looks like one that has ended."""
        if self.failed is not None:
            raise self.failed
        try:
            given = self._context.run(lambda: list(islice(self._source, count)))
            self._add(given)
        except BaseException as error:
            self.failed = error
            raise
        return len(given)

    def _add(self, given: list[JobRequest[Any]]) -> None:
        for job in given:
            check_job(job)
        if self._known + len(given) > self._limit:
            raise errors.BadJob(
                f"enqueue_many takes at most {self._limit} jobs in one call",
                got=len(given) if self._whole else f"more than {self._limit}",
                do="Split them into several calls",
            )
        options = [job.options for job in given]
        self._plain = self._plain and all([each.plain for each in options])
        self._options += options
        self._payloads += [job.payload for job in given]
        self._traces += [job.trace for job in given]

    @property
    def _slow(self) -> bool:
        allowed = Tuning.generator_seconds + self._known * Tuning.generator_job_seconds
        return self._waited > allowed

    def _pull_in_time(self) -> None:
        """Read some more while a transaction waits."""
        for _ in range(Tuning.bulk_block_jobs // Tuning.generator_jobs):
            # ``all`` raises the error later: raised here it would look like the database's
            with suppress(BaseException):
                self._pull(Tuning.generator_jobs)
            if self.failed is not None or self._slow or not self._plain:
                raise CannotCopy
            if self._whole:
                return


def check_job(job: object) -> None:
    """Raise BadJob for what is not a job."""
    if not isinstance(job, JobRequest):
        raise errors.BadJob("not a job", got=job, do="Make one with task.job(...)")
