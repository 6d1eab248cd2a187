"""Where claims begin, of what they saw."""

from __future__ import annotations

from leasework.model.begins import Begins, Range, Seen, Shared
from leasework.tuning import Tuning

FRESH = ("q", 1)
"""The level of fresh jobs of priority 0."""


def seen(first: int, highest: int, xid: int, **more: int) -> Seen:
    """Of fresh jobs of priority 0, with no older transaction at work."""
    told = {"level": 1, "oldest": xid, "server": 7}
    return Seen(first=first, highest=highest, xid=xid, **{**told, **more})


def begins_of(*claims: Seen) -> Begins:
    begins = Begins(lambda: 0.0)
    for claim in claims:
        begins.note("q", claim)
    return begins


def test_the_first_look_at_a_level_settles_nothing():
    """Whoever took a seat before the first one seen may not have committed yet."""
    assert begins_of(seen(50, 60, 100)).levels == {FRESH: 0}


def test_seats_are_settled_when_all_have_ended_that_could_fill_them():
    begins = begins_of(seen(50, 60, 100), seen(61, 62, 101))
    assert begins.levels == {FRESH: 60}


def test_a_claim_begins_at_the_first_available_job_though_more_is_settled():
    begins = begins_of(seen(50, 60, 100), seen(55, 62, 101))
    assert begins.levels == {FRESH: 55}


def test_an_older_transaction_that_runs_holds_the_begin_back():
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110, oldest=99))
    assert begins.levels == {FRESH: 0}
    begins.note("q", seen(80, 80, 120, oldest=119))
    assert begins.levels == {FRESH: 60}


def test_the_claim_itself_must_have_ended_too():
    """Its xid is no proof that all below it have ended, for as long as it is the oldest."""
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110, oldest=100))
    assert begins.levels == {FRESH: 0}


def test_what_is_to_be_settled_next_was_taken_after_the_last_was_settled():
    """The second look saw seat 65 taken, but whoever took it may run: only the third one knows."""
    begins = begins_of(seen(50, 60, 100), seen(66, 65, 101), seen(90, 90, 102, oldest=101))
    assert begins.levels == {FRESH: 60}
    begins.note("q", seen(95, 95, 103))
    assert begins.levels == {FRESH: 65}


def test_while_something_is_to_be_settled_no_later_look_puts_it_off():
    """Else a queue that is claimed from all the time would never settle anything."""
    begins = begins_of(seen(50, 60, 100))
    for xid in range(101, 150):
        begins.note("q", seen(xid, xid, xid, oldest=90))
    begins.note("q", seen(200, 200, 200, oldest=101))
    assert begins.levels == {FRESH: 60}


def test_a_begin_never_goes_back():
    """A job before it can only be one that was there when the begin was found, and is not."""
    begins = begins_of(seen(50, 60, 100), seen(58, 62, 101), seen(3, 63, 102))
    assert begins.levels == {FRESH: 58}


def test_levels_are_separate():
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110))
    begins.note("q", seen(20, 71, 111, level=0))
    begins.note("q", seen(30, 72, 112, level=7))
    begins.note("other", seen(40, 73, 113))
    assert begins.levels == {FRESH: 60, ("q", 0): 20, ("q", 7): 30, ("other", 1): 40}


def test_what_is_settled_is_settled_for_a_level_seen_later():
    """Seats are of the whole database: any claim that saw a level tells of all of them."""
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110))
    begins.note("other", seen(90, 90, 120, level=7))
    assert begins.levels["other", 7] == 70


def test_another_server_forgets_everything():
    """It may give the same seats and xids again: also what was to be settled counts no more."""
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110))
    begins.note("other", seen(80, 80, 120))
    begins.note("q", Shared(5, 4711, server=7))
    begins.note("q", seen(5, 9, 200, server=8))
    assert begins.server == 8
    assert begins.levels == {FRESH: 0} and not begins.shared
    begins.note("q", seen(9, 9, 300, server=8))
    assert begins.levels == {FRESH: 9}


# -- what a claim is told ------------------------------------------------------------------------
def test_a_queue_without_known_levels_is_one_range():
    everything = Range(1, -100000, 100000, 0, 0)
    assert begins_of().ranges(["q"]) == [everything]
    assert begins_of(seen(50, 60, 100)).ranges(["other"]) == [everything]


def test_a_queue_is_divided_at_the_levels_that_are_known():
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110), seen(80, 80, 120, level=-5))
    begins.note("q", seen(40, 80, 130, level=-6))
    assert begins.ranges(["other", "q"])[1:] == [
        Range(2, -100000, -6, 0, 0),
        Range(2, -6, -5, 40, 0),
        Range(2, -5, 1, 70, 0),
        Range(2, 1, 100000, 60, 0),
    ]


def test_a_begin_that_workers_share_is_passed_on_though_no_job_was_seen_there():
    begins = begins_of(seen(50, 60, 100))
    begins.note("q", [11, 4711, 7])
    assert begins.ranges(["q"])[1:] == [Range(1, 1, 11, 0, 0), Range(1, 11, 100000, 0, 4711)]


def test_a_worker_asks_which_begins_are_shared_again_after_a_while():
    now = 0.0
    begins = Begins(lambda: now)
    assert not begins.asks(), "a claim that knows no server is told in any case"
    now += Tuning.begin_ask_seconds
    assert begins.asks() and not begins.asks()
    now += Tuning.begin_ask_seconds
    assert begins.asks()
