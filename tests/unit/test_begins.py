"""Where claims begin, of what they saw."""

from __future__ import annotations

from leasehold.model.begins import Begins, Seen

FRESH = ("q", 0, True)


def seen(first: int, highest: int, xid: int, **more: int) -> Seen:
    """At priority 0, with no older transaction at work."""
    told = {"priority": 0, "fresh": 1, "oldest": xid, "server": 7}
    return Seen(first=first, highest=highest, xid=xid, **{**told, **more})


def begins_of(*claims: Seen) -> Begins:
    begins = Begins(lambda: 0.0)
    for claim in claims:
        begins.saw("q", claim)
    return begins


def test_the_first_look_at_a_level_settles_nothing():
    """Whoever took a seat before the first one seen may not have committed yet."""
    assert begins_of(seen(50, 60, 100)).of(["q"]) == [(FRESH, 0)]


def test_seats_are_settled_when_all_have_ended_that_could_fill_them():
    begins = begins_of(seen(50, 60, 100), seen(61, 62, 101))
    assert begins.of(["q"]) == [(FRESH, 60)]


def test_a_claim_begins_at_the_first_available_job_though_more_is_settled():
    begins = begins_of(seen(50, 60, 100), seen(55, 62, 101))
    assert begins.of(["q"]) == [(FRESH, 55)]


def test_an_older_transaction_that_runs_holds_the_begin_back():
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110, oldest=99))
    assert begins.of(["q"]) == [(FRESH, 0)]
    begins.saw("q", seen(80, 80, 120, oldest=119))
    assert begins.of(["q"]) == [(FRESH, 60)]


def test_the_claim_itself_must_have_ended_too():
    """Its xid is no proof that all below it have ended, for as long as it is the oldest."""
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110, oldest=100))
    assert begins.of(["q"]) == [(FRESH, 0)]


def test_what_is_to_be_settled_next_was_taken_after_the_last_was_settled():
    """The second look saw seat 65 taken, but whoever took it may run: only the third one knows."""
    begins = begins_of(seen(50, 60, 100), seen(66, 65, 101), seen(90, 90, 102, oldest=101))
    assert begins.of(["q"]) == [(FRESH, 60)]
    begins.saw("q", seen(95, 95, 103))
    assert begins.of(["q"]) == [(FRESH, 65)]


def test_while_something_is_to_be_settled_no_later_look_puts_it_off():
    """Else a queue that is claimed from all the time would never settle anything."""
    begins = begins_of(seen(50, 60, 100))
    for xid in range(101, 150):
        begins.saw("q", seen(xid, xid, xid, oldest=90))
    begins.saw("q", seen(200, 200, 200, oldest=101))
    assert begins.of(["q"]) == [(FRESH, 60)]


def test_a_begin_never_goes_back():
    """A job before it can only be one that was there when the begin was found, and is not."""
    begins = begins_of(seen(50, 60, 100), seen(58, 62, 101), seen(3, 63, 102))
    assert begins.of(["q"]) == [(FRESH, 58)]


def test_levels_are_separate():
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110))
    begins.saw("q", seen(20, 71, 111, fresh=0))
    begins.saw("q", seen(30, 72, 112, priority=3))
    begins.saw("other", seen(40, 73, 113))
    assert dict(begins.of(["q", "other"])) == {
        FRESH: 60,
        ("q", 0, False): 20,
        ("q", 3, True): 30,
        ("other", 0, True): 40,
    }


def test_what_is_settled_is_settled_for_a_level_seen_later():
    """Seats are of the whole database: any claim that saw a level tells of all of them."""
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110))
    begins.saw("other", seen(90, 90, 120, priority=3))
    assert begins.of(["other"]) == [(("other", 3, True), 70)]


def test_of_the_queues_that_are_asked_for_alone():
    begins = begins_of(seen(50, 60, 100))
    begins.saw("other", seen(70, 70, 110))
    assert [level[0] for level, _ in begins.of(["other"])] == ["other"]
    assert begins.of(["unheard-of"]) == []


def test_another_server_forgets_everything():
    """It may give the same seats and xids again: also what was to be settled counts no more."""
    begins = begins_of(seen(50, 60, 100), seen(70, 70, 110))
    begins.saw("other", seen(80, 80, 120))
    begins.saw("q", seen(5, 9, 200, server=8))
    assert begins.server == 8
    assert begins.of(["q", "other"]) == [(FRESH, 0)]
    begins.saw("q", seen(9, 9, 300, server=8))
    assert begins.of(["q"]) == [(FRESH, 9)]


def test_nothing_is_known_before_the_first_look():
    assert Begins(lambda: 0.0).of(["q"]) == []
