"""The jobs of a bulk enqueue and their ids."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

import pytest

from leasehold.env import Env
from leasehold.model.job import JobRequest
from leasehold.services.numbered import Numbered


class Counted:
    """``made``: how many ids were asked for so far."""

    def __init__(self) -> None:
        self.made = 0
        self._ids = Env().ids

    def __call__(self, count: int) -> list[UUID]:
        self.made += count
        return self._ids.many(count)


def requests(count: int) -> list[JobRequest]:
    return [JobRequest("t", f'{{"n":{n}}}') for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1700])
def test_a_job_keeps_its_id_however_often_it_is_asked_for(count: int):
    wanted, ids = requests(count), Counted()
    jobs = Numbered(wanted, ids)
    assert len(jobs) == count
    given_up = list(islice(jobs, 700))
    first, again = list(jobs), list(jobs)
    assert first == again
    assert first[:700] == given_up
    assert [job for _, job in first] == wanted
    assert [job_id for job_id, _ in first] == sorted({job_id for job_id, _ in first})
    assert ids.made == count


def test_ids_are_made_when_they_are_needed():
    ids = Counted()
    jobs = Numbered(requests(1700), ids)
    assert ids.made == 0
    list(islice(jobs, 3))
    assert 3 <= ids.made < 1000


def test_any_of_them_can_be_asked_for():
    jobs = Numbered(requests(1200), Counted())
    last = jobs[-1]
    assert jobs[1199] == last == list(jobs)[-1]
    assert jobs[10:12] == list(jobs)[10:12]
    with pytest.raises(IndexError):
        jobs[1200]
