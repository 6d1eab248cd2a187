"""The jobs of a bulk enqueue and their ids."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from uuid import UUID

import pytest

from leasework.env import Env
from leasework.errors import BadJob
from leasework.jobs.bulk import BulkJobs
from leasework.model.job import JobRequest
from tests.support.requests import job_request

LIMIT = 10_000


class Counted:
    """``made``: how many ids were asked for so far."""

    def __init__(self) -> None:
        self.made = 0
        self._ids = Env().ids

    def __call__(self, count: int) -> list[int]:
        self.made += count
        return self._ids.numbers(count)


def numbered(
    requests: Iterable[JobRequest], ids: Callable[[int], list[int]] | None = None
) -> BulkJobs:
    return BulkJobs(requests, ids or Counted(), LIMIT)


def request(n: int, **options: object) -> JobRequest:
    return job_request("t", f'{{"n":{n}}}', **options)


def requests(count: int) -> list[JobRequest]:
    return [request(n) for n in range(count)]


class Source:
    """A generator's jobs; ``taken`` so far."""

    def __init__(self, jobs: Iterable[JobRequest]) -> None:
        self._jobs = iter(jobs)
        self.taken = 0

    def __iter__(self) -> Iterator[JobRequest]:
        return self

    def __next__(self) -> JobRequest:
        job = next(self._jobs)
        self.taken += 1
        return job


@pytest.mark.parametrize("kind", [list, Source])
@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1000, 1700])
def test_a_job_keeps_its_id_however_often_it_is_asked_for(count: int, kind: type):
    wanted, ids = requests(count), Counted()
    jobs = numbered(kind(wanted), ids)
    copied, pairs = list(jobs.copied()), list(jobs)
    assert copied == list(jobs.copied())
    assert [JobRequest(*what) for _, *what in copied] == [job for _, job in pairs] == wanted
    numbers = [number for number, *_ in copied]
    assert numbers == jobs.numbers == sorted(set(numbers))
    assert [job_id for job_id, _ in pairs] == [UUID(int=number) for number in numbers]
    assert len(jobs) == count
    assert ids.made == count


@pytest.mark.parametrize("kind", [list, Source])
def test_all_of_them_carry_the_trace_of_their_call(kind: type):
    jobs = numbered(kind(requests(1200)))
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    jobs.traced(trace)
    assert [carried for *_, carried in jobs.copied()] == [trace] * 1200
    assert [job for _, job in jobs] == [request(n, trace=trace) for n in range(1200)]
    assert jobs[700][1].trace == jobs[-1][1].trace == trace


def test_what_is_kept_of_many_is_nothing_that_the_garbage_collector_goes_through():
    shared = request(0).options
    jobs = numbered(JobRequest(shared, f'{{"n":{n}}}') for n in range(5000))
    gc.collect()
    before = len(gc.get_objects())
    assert sum(1 for _ in jobs.copied()) == 5000
    assert len(jobs.numbers) == 5000
    assert len(gc.get_objects()) < before + 500


class Shelf:
    """A collection that is no list."""

    def __init__(self, jobs: list[JobRequest]) -> None:
        self.jobs = jobs

    def __iter__(self) -> Iterator[JobRequest]:
        return iter(self.jobs)


@pytest.mark.parametrize("kind", [list, Shelf])
def test_what_may_change_is_taken_at_once(kind: type):
    given = requests(1700)
    jobs = numbered(given if kind is list else kind(given))
    given.clear()
    assert len(list(jobs.copied())) == 1700


def test_any_of_them_can_be_asked_for():
    jobs = numbered(requests(1200))
    last = jobs[-1]
    assert jobs[1199] == last == list(jobs)[-1]
    assert jobs[10:12] == list(jobs)[10:12]
    with pytest.raises(IndexError):
        jobs[1200]


def test_jobs_of_which_one_has_a_key_are_not_copied():
    plain = requests(700)
    assert numbered(plain).can_be_copied(700) and not numbered(plain).can_be_copied(701)
    assert not numbered([*plain, request(700, unique="k")]).can_be_copied(20)


@pytest.mark.parametrize("given", [["x"], [*requests(600), "x"]])
@pytest.mark.parametrize("kind", [list, Source])
def test_what_is_no_job_is_named(given: list, kind: type):
    with pytest.raises(BadJob, match=r"not a job\. Got: x"):
        numbered(kind(given))


def test_an_endless_generator_is_not_read_to_its_end():
    source = Source(request(n) for n in count())
    with pytest.raises(BadJob, match=r"at most 10000.*Got: more than 10000"):
        numbered(source)
    assert source.taken <= LIMIT + 500
    with pytest.raises(BadJob, match="at most 10000"):
        numbered(requests(LIMIT + 1))
    assert len(numbered(Source(requests(LIMIT)))) == LIMIT
