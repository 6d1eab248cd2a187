"""The jobs of a bulk enqueue, with ids. Only numbers and text of them are kept: many objects would
make the garbage collector scan the whole process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from leasework import errors
from leasework.env import id_of
from leasework.model.job import BulkJob, JobOptions, JobRequest
from leasework.tuning import Tuning

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
        self.options: list[JobOptions] = []
        self._payloads: list[str] = []
        self._traces: list[str | None] = []
        self._waits: list[dict[str, Any] | None] = []
        self._plain = True
        given = iter(requests)
        while block := list(islice(given, Tuning.bulk_block_jobs)):
            self._add(block, most)
        self.numbers = new_numbers(len(self))

    @property
    def bytes(self) -> int:
        """Bytes of all arguments."""
        return sum(map(len, self._payloads))

    def can_be_copied(self, least: int) -> bool:
        """Return whether there are at least ``least`` jobs, all plain."""
        return len(self) >= least and self._plain

    def traced(self, trace: str) -> None:
        """Set the trace context of all jobs."""
        self._traces = [trace] * len(self)

    def copied(self) -> Iterator[BulkJob]:
        """Yield the rows for a COPY."""
        return zip(self.numbers, self.options, self._payloads, self._traces, strict=True)

    def __len__(self) -> int:
        return len(self._payloads)

    def __getitem__(self, which: Any) -> Any:
        """Return one pair, or a list for a slice."""
        if not isinstance(which, int):
            return [self[place] for place in range(*which.indices(len(self)))]
        options, payload, trace = self.options[which], self._payloads[which], self._traces[which]
        made = JobRequest.of(options, payload, trace, self._waits[which])
        return id_of(self.numbers[which]), made

    def __iter__(self) -> Iterator[Pair]:
        return map(self.__getitem__, range(len(self)))

    def _add(self, given: list[JobRequest[Any]], most: int) -> None:
        for job in given:
            if not isinstance(job, JobRequest):
                raise not_a_job(job)
        if len(self) + len(given) > most:
            raise errors.BadJob(
                f"enqueue_many takes at most {most} jobs in one call",
                got=f"more than {most}",
                do="Split them into several calls",
            )
        options = [job.options for job in given]
        waits = [job.waits for job in given]
        self._plain = self._plain and all([each.plain for each in options]) and not any(waits)
        self._waits += waits
        self.options += options
        self._payloads += [job.payload for job in given]
        self._traces += [job.trace for job in given]


def not_a_job(given: object) -> errors.BadJob:
    return errors.BadJob("not a job", got=given, do="Make one with task.job(...)")
