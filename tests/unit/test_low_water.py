"""Where a claim begins and ends to look: at everything, at a mark, or at a piece below it."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from leasehold.jobs.walk import Walk
from leasehold.model.job import EVERYTHING, FIRST, LAST, Span
from tests.unit.searched_queue import Queue, claimed, is_piece


@pytest.fixture
def slow() -> Queue:
    """A look at everything takes a tenth of a second; it has been so for a minute."""
    queue = Queue(entry=20e-6)
    queue.bury(2500, age=3000.0)
    queue.run(3.0)
    queue.bury(2500, age=-1.0)
    queue.run(60.0)
    assert queue.low_water.slow
    return queue


# -- while it is quick ---------------------------------------------------------------------------
def test_with_a_backlog_a_claim_begins_where_the_last_one_ended() -> None:
    queue = Queue()
    queue.enqueue(200)
    hundredth = queue.ready[99]
    assert queue.look() == EVERYTHING, "nothing is known yet"
    assert queue.look() == Span(hundredth, LAST) and not queue.empty


def test_with_a_backlog_everything_is_looked_at_once_a_second() -> None:
    queue = Queue()
    queue.enqueue(3000)
    spans = [queue.look(after=0.1) for _ in range(28)]
    assert [n for n, span in enumerate(spans) if span == EVERYTHING] == [0, 10, 20]


def test_a_queue_is_empty_only_when_everything_was_looked_at() -> None:
    queue = Queue()
    queue.enqueue(107)
    hundredth = queue.ready[99]
    queue.look()
    assert queue.look() == Span(hundredth, LAST) and not queue.empty
    assert queue.look() == EVERYTHING and queue.empty


def test_without_a_backlog_every_claim_looks_at_everything() -> None:
    queue = Queue()
    assert set(queue.seconds(5)) == {EVERYTHING}


@pytest.mark.parametrize("pause", [0.01, 5.0])
def test_a_slow_link_is_not_taken_for_a_slow_search(pause: float) -> None:
    queue = Queue(link=0.3)
    queue.enqueue()
    spans = [queue.look(after=pause) for _ in range(100)]
    from_mark = len(spans) - spans.count(EVERYTHING)
    assert 5 < from_mark < len(spans) / 10, "one for ten, for comparison"
    assert not queue.low_water.slow


def test_a_link_that_became_slow_after_a_backlog_is_not_taken_for_a_slow_search() -> None:
    queue = Queue()
    for _ in range(3):
        queue.enqueue(120)
        queue.run(5)
    queue.link = 0.03
    queue.now += 100
    for _ in queue.seconds(10):
        assert not queue.low_water.slow


def test_what_became_slow_after_a_backlog_is_known() -> None:
    queue = Queue()
    for _ in range(3):
        queue.enqueue(120)
        queue.run(5)
    queue.now += 100
    queue.bury(3000, age=200.0)
    queue.entry = 20e-6
    queue.run(2)
    assert queue.low_water.slow


def test_a_look_that_claims_much_is_not_compared_with_one_that_claims_little() -> None:
    queue = Queue()
    queue.row = 100e-6
    for _ in range(5):
        queue.enqueue(3000)
        queue.run(3)
        queue.now += 2.0
        queue.look()
    assert not queue.low_water.slow


def test_what_a_row_takes_is_no_search() -> None:
    queue = Queue()
    for _ in range(5):
        queue.enqueue(500)
        queue.now += 1.0
        assert queue.look(limit=500) == EVERYTHING
        for _ in range(10):
            queue.enqueue(60)
            assert queue.look(limit=60) != EVERYTHING
    assert not queue.low_water.slow


# -- when it is slow -----------------------------------------------------------------------------
def test_a_search_that_dead_rows_make_slow_is_made_in_pieces(slow: Queue) -> None:
    spans = list(slow.seconds(60))
    assert spans.count(EVERYTHING) == 0
    assert 10 < sum(is_piece(span) for span in spans) < 200
    slow.enqueue()
    while is_piece(slow.look()):
        pass
    assert slow.empty, "as far as one may know"
    assert 0 < slow.low_water.looks_back_in(slow.now) <= 20


def test_a_long_backlog_is_known_to_be_slow_to_search() -> None:
    queue = Queue(entry=20e-6)
    queue.bury(2500, age=3000.0)
    queue.enqueue(30_000)
    for _ in range(250):
        queue.look(after=0.05)
    assert queue.low_water.slow


def test_pieces_stay_small_as_the_time_goes_on() -> None:
    queue = Queue()
    queue.run(3)
    queue.entry = 5e-6
    took = queue.run(600, new=5)
    assert len(queue.dead) * queue.entry > 0.9, "all of it would take so long"
    assert max(took) < 0.06


def test_pieces_are_as_small_when_it_becomes_slow_again_after_a_long_time(slow: Queue) -> None:
    for _ in range(2):
        for _ in range(3600):
            slow.enqueue()
            slow.look(after=1.0)
        slow.entry = 0.0
        slow.run(45)
        assert not slow.low_water.slow
        slow.dead.clear()
        slow.entry = 20e-6
        slow.run(120)
        assert slow.low_water.slow
        assert max(slow.run(60)) < 0.04 < len(slow.dead) * slow.entry / 4


def test_pieces_are_as_small_after_a_day_in_which_it_was_quick() -> None:
    queue = Queue()
    for _ in range(24 * 60):
        queue.enqueue()
        queue.look(after=60)
    queue.dead.clear()
    queue.entry = 20e-6
    queue.run(300)
    assert max(queue.run(300)) < 0.06 < len(queue.dead) * queue.entry / 10


def test_no_part_of_it_is_left_out(slow: Queue) -> None:
    slow.run(60, new=5)
    slow.ready, slow.dead = slow.dead[::500], slow.dead[1::500]
    slow.run(25)
    assert not slow.ready


def test_pieces_take_a_tenth_of_the_time_at_most(slow: Queue) -> None:
    slow.entry *= 20
    start, sought = slow.now, 0.0
    for span in slow.seconds(200, new=0):
        sought += slow.took if is_piece(span) else 0.0
    assert 0 < sought < (slow.now - start) / 9


def test_a_piece_with_more_jobs_than_one_claim_takes_is_emptied_soon(slow: Queue) -> None:
    slow.ready, slow.dead = slow.dead[:250], slow.dead[250:]
    while len(slow.ready) == 250:
        slow.look(after=1.0)
    spans = [slow.look(after=0.0) for _ in range(4)]
    pieces = [span for span in spans if is_piece(span)]
    assert len(pieces) == 2 and not slow.ready, "each second look: others have their turn"
    assert pieces[0].begin < pieces[1].begin, "and what was claimed is not walked over again"


def test_pieces_wait_for_looks_from_the_mark_when_all_slots_were_busy(slow: Queue) -> None:
    slow.now += 60
    spans = [slow.look(after=0.0) for _ in range(40)]
    assert not any(is_piece(a) and is_piece(b) for a, b in pairwise(spans))


def test_a_piece_whose_claim_fails_does_not_hold_up_the_others(slow: Queue) -> None:
    slow.now += slow.low_water.looks_back_in(slow.now)
    piece = slow.low_water.next(slow.now)
    assert is_piece(piece) and not is_piece(slow.low_water.next(slow.now))
    slow.now += slow.low_water.looks_back_in(slow.now)
    assert slow.low_water.next(slow.now) == piece, "it has its turn again"


def test_when_the_search_is_quick_again_it_is_made_as_before(slow: Queue) -> None:
    slow.dead.clear()
    slow.entry = 0.0
    slow.run(45)
    assert not slow.low_water.slow
    assert set(slow.seconds(1)) == {EVERYTHING}


def test_it_stays_slow_as_long_as_it_is(slow: Queue) -> None:
    for _ in slow.seconds(300):
        assert slow.low_water.slow


def test_one_look_that_a_stopped_machine_made_long_is_nothing(slow: Queue) -> None:
    slow.now += slow.low_water.looks_back_in(slow.now)
    span = slow.low_water.next(slow.now)
    assert is_piece(span)
    slow.now += 3600
    slow.low_water.looked(span, [], 100, slow.now - 3600, slow.now)
    assert slow.low_water.looks_back_in(slow.now) <= 20
    slow.dead.clear()
    slow.entry = 0.0
    slow.run(80)
    assert not slow.low_water.slow


def test_where_looks_differ_by_chance_they_do_not_stay_slow(slow: Queue) -> None:
    chance = Random(1)
    slow.dead.clear()
    slow.entry = 0.0
    for _ in slow.seconds(700):
        slow.link = chance.expovariate(1 / 0.005)
        if not slow.low_water.slow:
            return
    raise AssertionError("ten minutes")


@pytest.mark.parametrize(("pause", "most"), [(0.01, 0.05), (0.01, 0.2), (0.45, 0.05)])
@pytest.mark.parametrize("seed", range(5))
def test_a_busy_machine_is_not_taken_for_a_slow_search(
    seed: int, pause: float, most: float
) -> None:
    """Each look, of whatever, now takes 5 ms and now 50 or 200, for ten minutes."""
    chance, queue = Random(seed), Queue()
    while queue.now < 10_600:
        queue.link = chance.uniform(0.005, most)
        queue.enqueue()
        queue.look(after=pause)
        assert not queue.low_water.slow


@pytest.mark.parametrize("pause", [0.1, 1.0])
def test_jobs_that_start_are_not_taken_for_a_slow_search(pause: float) -> None:
    """They make the next look longer, of whatever it is."""
    chance, queue, started = Random(1), Queue(), False
    while queue.now < 11_800:
        queue.enqueue()
        queue.empty, after = False, pause
        while not queue.empty:
            queue.link = 0.01 if chance.random() < 0.01 else 0.014 if started else 0.006
            found = len(queue.ready)
            queue.look(after=after)
            started, after = len(queue.ready) < found, 0.0
            assert not queue.low_water.slow
        started = False


def test_a_machine_that_was_busy_for_a_while_is_not_compared_with_itself_later() -> None:
    queue = Queue(link=0.03)
    for _ in range(5):
        queue.run(1.0)
        queue.link = 0.03 - queue.link
        queue.run(1.0)
        queue.enqueue(120)
        queue.run(5.0)
        assert not queue.low_water.slow


@pytest.mark.parametrize(
    ("row", "link", "all_find", "mark_finds"),
    [(100e-6, 0.0, 500, 1), (1e-3, 0.006, 46, 1), (20e-6, 0.006, 1, 500)],
)
def test_what_rows_take_is_not_taken_for_a_search(
    row: float, link: float, all_find: int, mark_finds: int
) -> None:
    queue = Queue(link=link)
    queue.row = row
    for _ in range(100):
        from_mark = queue.low_water._in_doubt(queue.now + 0.01)
        queue.enqueue(mark_finds if from_mark else all_find)
        queue.look(limit=1000)
        assert not queue.low_water.slow


@pytest.mark.parametrize(("entry", "looks"), [(20e-6, 13), (200e-6, 4), (1e-3, 2)])
def test_it_is_known_after_a_few_looks_made_in_turns(entry: float, looks: int) -> None:
    """A tenth of a second each, one second, five."""
    queue, spans = Queue(entry=entry), []
    queue.bury(5000, age=3000.0)
    while not queue.low_water.slow:
        queue.enqueue()
        spans.append(queue.look())
    assert spans.count(EVERYTHING) == looks
    assert all((a == EVERYTHING) != (b == EVERYTHING) for a, b in pairwise(spans))


def test_it_is_known_where_looks_are_rare() -> None:
    """One slot, jobs of two seconds, a backlog; and a queue that sleeps for five."""
    for jobs, limit, after in ((2000, 1, 2.0), (0, 100, 5.0)):
        queue = Queue(entry=20e-6)
        queue.bury(5000, age=3000.0)
        queue.enqueue(jobs + 1)
        for _ in range(30):
            queue.look(limit=limit, after=after)
        assert queue.low_water.slow


def test_it_is_known_where_each_look_claims_many_and_all() -> None:
    queue = Queue(entry=5e-6)
    queue.bury(30_000, age=3000.0)
    for _ in range(60):
        queue.enqueue(int(700 * (queue.took + 0.01)))
        queue.look(limit=500)
    assert queue.low_water.slow


@pytest.mark.parametrize("seed", range(5))
def test_long_looks_by_chance_do_not_keep_it_from_being_known(seed: int) -> None:
    queue, chance = Queue(entry=20e-6), Random(seed)
    queue.bury(5000, age=3000.0)
    while not queue.low_water.slow:
        queue.enqueue()
        queue.look()
        queue.link = 0.2 if chance.random() < 0.1 else 0.0
    assert queue.now < 10_120


def test_one_long_look_before_a_trial_takes_nothing_away(slow: Queue) -> None:
    slow.entry = 5e-6
    slow.run(200)
    while slow.look() != EVERYTHING:
        slow.enqueue()
        trial_is_next = slow.low_water._trying and not slow.low_water.looks_back_in(slow.now + 0.01)
        slow.link = 0.0 if trial_is_next and not slow.low_water._after_piece else 0.2
    slow.link = 0.0
    assert not slow.low_water.slow, "or nothing was shown"
    spans = list(slow.seconds(30))
    assert slow.low_water.slow and spans.count(EVERYTHING) < 30
    assert len({span.end for span in spans if is_piece(span)}) > 10, "the pieces are as they were"


@pytest.mark.parametrize("blind", [False, True])
def test_on_a_busy_machine_it_does_not_stay_slow_either(slow: Queue, blind: bool) -> None:
    chance = Random(1)
    slow.run(250)
    slow.low_water.blind = blind
    slow.dead.clear()
    slow.entry = 0.0
    for _ in slow.seconds(1200):
        slow.link = chance.uniform(0.005, 0.05)
        if not slow.low_water.slow:
            return
    raise AssertionError("twenty minutes")


# -- where nobody would tell us ------------------------------------------------------------------
def test_behind_a_pooler_an_old_job_is_found_as_soon_as_while_it_is_quick(slow: Queue) -> None:
    slow.run(60, new=5)
    slow.low_water.blind = True
    for _ in range(5):
        slow.ready = [slow.dead.pop(len(slow.dead) // 2)]
        began, pieces = slow.now, 0
        while slow.ready:
            slow.now += min(0.5, slow.low_water.looks_back_in(slow.now))
            pieces += is_piece(slow.look(after=0.0))
            assert slow.now - began < 1.5
        slow.run(1.7, new=0)
    assert pieces, "or nothing was shown"


def test_behind_a_pooler_pieces_take_half_of_the_time_at_most(slow: Queue) -> None:
    slow.low_water.blind = True
    slow.entry *= 20
    start, sought = slow.now, 0.0
    for span in slow.seconds(200, new=0):
        sought += slow.took if is_piece(span) else 0.0
    assert 0.3 < sought / (slow.now - start) < 0.55


def test_behind_a_pooler_a_quiet_queue_is_looked_at_a_few_times_a_second(slow: Queue) -> None:
    slow.run(250)
    slow.entry = 6e-6
    slow.low_water.blind = True
    start, looks = slow.now, 0
    while slow.now < start + 60:
        slow.look(after=0.0)
        looks += 1
        if slow.empty:
            slow.now += min(0.5, slow.low_water.looks_back_in(slow.now))
    assert len(slow.dead) * slow.entry > 0.1 and looks < 60 * 15


def test_behind_a_pooler_a_look_that_takes_long_is_not_tried_more_often(slow: Queue) -> None:
    slow.low_water.blind = True
    tried = [slow.took for span in slow.seconds(2000, new=0) if span == EVERYTHING]
    assert len(tried) >= 2 and min(tried) > 0.02
    assert sum(tried) < 2000 / 4000


# -- older jobs that have become free ------------------------------------------------------------
def test_when_a_job_has_become_free_everything_is_looked_at() -> None:
    queue = Queue()
    queue.enqueue(200)
    queue.look()
    queue.low_water.forget()
    assert queue.look() == EVERYTHING
    queue.enqueue(200)
    queue.look()
    assert queue.look() != EVERYTHING, "once"


def test_where_it_is_slow_the_pieces_follow_each_other_then(slow: Queue) -> None:
    slow.run(60, new=5)
    slow.ready, slow.dead = slow.dead[:1], slow.dead[1:]
    slow.low_water.forget()
    looks = [(is_piece(span), slow.took) for span in slow.seconds(3)]
    assert not slow.ready
    assert max(took for _, took in looks) < len(slow.dead) * slow.entry / 3
    assert not any(a and b for (a, _), (b, _) in pairwise(looks)), "others have their turn"
    assert slow.low_water.looks_back_in(slow.now) > 0


def test_it_waits_for_a_few_free_slots_then_not_for_one_a_piece(slow: Queue) -> None:
    slow.run(250)
    slow.enqueue(1000)
    slow.ready, slow.dead = (
        [*slow.dead[2000:2001], *slow.ready],
        slow.dead[:2000] + slow.dead[2001:],
    )
    slow.low_water.forget()
    slots, old = 0, slow.ready[0]
    while old in slow.ready:
        found = len(slow.ready)
        slow.look(limit=1, after=0.0)
        if len(slow.ready) < found:
            slots += 1
            slow.now += 90.0
    assert slots < 10


def test_what_we_are_told_during_a_look_is_not_forgotten(slow: Queue) -> None:
    queue = Queue()
    for _ in range(3):
        queue.enqueue()
        span = queue.low_water.next(queue.now)
        queue.low_water.forget()
        queue.low_water.looked(span, [claimed(queue.ready.pop())], 100, queue.now, queue.now)
        assert queue.low_water.next(queue.now) == EVERYTHING
    slow.run(60, new=5)
    slow.low_water.forget()
    middle, further = (slow.dead[len(slow.dead) * n // 10] for n in (3, 4))
    while not (is_piece(span := slow.look()) and span.begin > further):
        pass
    slow.ready = [middle]
    slow.low_water.forget()
    slow.run(4, new=0)
    assert not slow.ready, "whichever piece was looked at when we were told"


def test_an_old_job_that_became_free_does_not_take_the_mark_back(slow: Queue) -> None:
    slow.run(5)
    slow.ready, slow.dead = slow.dead[:1], slow.dead[1:]
    while slow.ready:
        slow.look()
    assert [slow.look(after=0.0).begin for _ in range(2)][1] == slow.dead[-1]


def test_many_that_became_visible_late_are_followed(slow: Queue) -> None:
    """A transaction of 1.5 seconds with many jobs: behind the mark when it commits."""
    slow.enqueue(250, age=1.5)
    spans = [slow.look(limit=50, after=0.2) for _ in range(10)]
    assert sum(is_piece(span) for span in spans) < 5
    assert not slow.ready


def test_where_we_are_told_all_the_time_half_of_it_is_for_what_is_new(slow: Queue) -> None:
    slow.run(60, new=5)
    start, sought = slow.now, 0.0
    for span in slow.seconds(60):
        slow.low_water.forget()
        sought += slow.took if is_piece(span) else 0.0
    assert 0.3 < sought / (slow.now - start) < 0.55


def test_in_a_backlog_of_costly_rows_it_is_not_tried_all_the_time(slow: Queue) -> None:
    slow.row = 100e-6
    slow.enqueue(100)
    spans = list(slow.seconds(100, new=100))
    assert slow.low_water.slow and EVERYTHING not in spans


# -- several priorities --------------------------------------------------------------------------
def test_a_piece_is_not_searched_for_what_is_more_urgent(slow: Queue) -> None:
    slow.bury(5000, age=3000.0, priority=1)
    took = [slow.took for span in slow.seconds(60) if is_piece(span) and span.begin != FIRST]
    assert took and max(took) < 0.06


def test_the_mark_is_where_the_jobs_are(slow: Queue) -> None:
    for priority in 1, 3, 5, 3:
        spans = list(slow.seconds(1, 1, priority))
        assert {span.begin.priority for span in spans[1:] if not is_piece(span)} == {priority}


def test_jobs_of_every_priority_are_found_at_once(slow: Queue) -> None:
    for n in range(300):
        slow.enqueue(1, priority=n % 5)
        slow.look()
        slow.look()
        assert not slow.ready


def test_the_first_place_is_before_every_other() -> None:
    queue = Queue()
    lowest, highest = queue.place(priority=-(1 << 15)), queue.place(priority=(1 << 15) - 1)
    assert lowest > FIRST and highest < LAST


def test_a_look_at_everything_that_is_tried_and_slow_loses_no_piece(slow: Queue) -> None:
    slow.entry = 1e-6
    cuts = {span.end for span in slow.seconds(40) if is_piece(span)}
    spans = list(slow.seconds(300))
    assert slow.low_water.slow and EVERYTHING in spans
    assert len(cuts & {span.end for span in spans}) > 3


def test_it_is_quick_at_once_though_it_was_very_slow() -> None:
    queue = Queue(entry=1e-3)
    queue.bury(5000, age=3000.0)
    queue.run(100)
    assert queue.low_water.slow
    queue.dead.clear()
    queue.entry = 0.0
    queue.run(45)
    assert not queue.low_water.slow
    queue.run(1)
    queue.bury(5000, age=3000.0)
    queue.entry = 20e-6
    looks = [queue.look() for _ in range(20) if not queue.low_water.slow]
    assert len(looks) == 20, "what was before does not count"


def test_it_begins_to_be_slow_once(slow: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr(Walk, "start", lambda walk, now: begun.append(now))
    slow.entry = 1e-6
    assert EVERYTHING in list(slow.seconds(60)) and slow.low_water.slow
    assert not begun


def test_after_a_backlog_in_which_it_became_quick_it_is_known_soon(slow: Queue) -> None:
    slow.dead.clear()
    slow.entry = 0.0
    slow.enqueue(300)
    slow.run(45, new=100)
    assert slow.ready and not slow.low_water.slow


def test_a_more_urgent_job_does_not_wait_for_a_long_piece_to_be_emptied(slow: Queue) -> None:
    slow.ready, slow.dead = slow.dead[:2000], slow.dead[2000:]
    while len(slow.ready) == 2000:
        slow.look(after=1.0)
    slow.enqueue(1, priority=1)
    urgent = slow.ready[0]
    slow.look(limit=1, after=0.0)
    slow.look(limit=1, after=0.0)
    assert urgent not in slow.ready
