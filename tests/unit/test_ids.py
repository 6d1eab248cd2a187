"""Ids of jobs: in the order in which they were made, and nobody else's."""

from __future__ import annotations

import time
from uuid import UUID

from leasework.env import Clock, Env, Ids, id_of


class Still(Clock):
    def wall_nanos(self) -> int:
        return 1_700_000_000_000 * 1_000_000


def test_ids_of_one_process_grow_also_within_a_millisecond_and_when_the_clock_is_set_back():
    ids = Ids(Still())
    made = [id_of(n) for n in ids.numbers(5000)]
    made += [ids.new(), *[id_of(n) for n in ids.numbers(3)]]
    assert made == sorted(made)
    assert len({id.int for id in made}) == len(set(made)) == len(made)
    assert [UUID(str(id)) for id in made] == made, "as those that UUID itself makes"
    assert {id.version for id in made} == {7}
    assert {id.variant for id in made} == {"specified in RFC 4122"}
    assert made[0].int >> 80 == 1_700_000_000_000
    assert made[5000].int >> 80 == 1_700_000_000_001, "4,096 in each millisecond"


def test_two_processes_make_different_ids_in_the_same_moment():
    one, other = Ids(Still()).numbers(1000), Ids(Still()).numbers(1000)
    assert {a >> 64 for a in one} == {b >> 64 for b in other}, "the same moments"
    assert not set(one) & set(other)
    assert len({number & (1 << 62) - 1 for number in one}) == 1000


def test_an_id_says_when_it_was_made():
    before = int(time.time() * 1000)
    made = Env().new_id().int >> 80
    assert before <= made <= int(time.time() * 1000)
