"""Jobs with their ids, which are made while the database works on those before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from leasehold.model.job import JobRequest

_AT_ONCE = 500

Pair = tuple[UUID, JobRequest]


class Numbered(Sequence[Pair]):
    """Each job has the same id whenever it is asked for, so that a try whose outcome is unknown
    can be repeated. ``new_ids``: gives so many."""

    def __init__(
        self, requests: Sequence[JobRequest], new_ids: Callable[[int], list[UUID]]
    ) -> None:
        self._requests = requests
        self._new_ids = new_ids
        self._made: list[Pair] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, which: Any) -> Any:
        """As a list's."""
        while len(self._made) < len(self._requests):
            self._make()
        return self._made[which]

    def __iter__(self) -> Iterator[Pair]:
        given = 0
        while given < len(self._requests):
            if given == len(self._made):
                self._make()
            block = self._made[given:]
            given += len(block)
            yield from block

    def _make(self) -> None:
        first = len(self._made)
        block = self._requests[first : first + _AT_ONCE]
        self._made += zip(self._new_ids(len(block)), block, strict=True)
