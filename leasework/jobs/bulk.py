"""The jobs of a bulk enqueue, with ids. Ids are kept as numbers: many objects would make the
garbage collector scan the whole process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from leasework import errors
from leasework.env import id_of
from leasework.model.job import BulkJob, JobOptions, JobRequest, checked

Pair = tuple[UUID, JobRequest[Any]]


class BulkJobs(Sequence[Pair]):
    """Jobs and their ids. An id never changes, so that a try with an unknown result can be
    repeated. ``new_numbers`` makes ids, as numbers (see ``id_of``); ``most`` is the number of jobs
    allowed. Raises BadJob for too many jobs or for something that is not a job."""

    def __init__(
        self,
        requests: Iterable[JobRequest[Any]],
        new_numbers: Callable[[int], list[int]],
        most: int,
    ) -> None:
        self._requests = [checked(job) for job in islice(requests, most + 1)]
        if len(self) > most:
            raise errors.BadJob(
                f"one call enqueues at most {most} jobs",
                got=f"more than {most}",
                do="Split them into several calls",
            )
        self.numbers = new_numbers(len(self))

    @property
    def options(self) -> Iterator[JobOptions]:
        return (job.options for job in self._requests)

    @property
    def bytes(self) -> int:
        """Bytes of all arguments."""
        return sum(len(job.payload) for job in self._requests)

    def can_be_copied(self, least: int) -> bool:
        """Return whether there are at least ``least`` jobs, all plain."""
        plain = (job.options.plain and not job.waits for job in self._requests)
        return len(self) >= least and all(plain)

    def traced(self, trace: str) -> None:
        """Set the trace context of all jobs."""
        self._requests = [job.traced(trace) for job in self._requests]

    def copied(self) -> Iterator[BulkJob]:
        """Yield the rows for a COPY."""
        for number, job in zip(self.numbers, self._requests, strict=True):
            yield number, job.options, job.payload, job.trace

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, which: Any) -> Any:
        """Return one pair, or a list for a slice."""
        if not isinstance(which, int):
            return [self[place] for place in range(*which.indices(len(self)))]
        return id_of(self.numbers[which]), self._requests[which]

    def __iter__(self) -> Iterator[Pair]:
        return map(self.__getitem__, range(len(self)))
