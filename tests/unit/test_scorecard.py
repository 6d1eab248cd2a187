"""The demo's scorecard: what the evidence says, and what it must not let pass."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from leasework_lab.demo.scorecard import Act, Death, Evidence, score
from leasework_lab.demo.show import STOPPING, Picture, PlainScreen, Row, _render, counters, lines
from leasework_lab.demo.tables import Look, Run
from leasework_lab.demo.watch import Watcher

from leasework.model.schedule import every

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
KILLED, OTHER = "host:11:aaaaaa", "host:22:bbbbbb"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def job(number: int) -> UUID:
    return UUID(int=number)


def run(
    number: int,
    started: float,
    finished: float | None,
    *,
    worker: str = OTHER,
    tick: int | None = None,
    attempt: int = 1,
) -> Run:
    """One run; its id is its start, as the table has them in the order of their starts."""
    moment = None if tick is None else at(tick)
    ended = None if finished is None else at(finished)
    task = "quick" if tick is None else "tick"
    return Run(int(started * 1000), job(number), task, moment, worker, attempt, at(started), ended)


TICKS = [run(100 + n, n + 0.01, n + 0.02, tick=n) for n in range(6)]
JOBS = [run(1, 0.2, 0.3), run(2, 1.0, 1.1)]
CUT = [
    run(3, 1.5, None, worker=KILLED),
    run(3, 2.4, 4.4, attempt=2),
    # its handler had come to its end, but nobody had heard of it
    run(4, 1.9, 1.99, worker=KILLED),
    run(4, 2.3, 2.4, attempt=2),
]
DEATH = Death(KILLED, at(2), 1, frozenset({job(3), job(4)}), led_again_at=at(2.25))
GOOD = Evidence(
    spec=every(seconds=1),
    decided=(at(0), at(5)),
    until=at(5.5),
    enqueued=[job(n) for n in (1, 2, 3, 4)],
    runs=[*TICKS, *JOBS, *CUT],
    deaths=[DEATH],
    limit_seconds=15,
)


def verdict(**changes: Any) -> Any:
    return score(replace(GOOD, **changes))


def test_good_evidence_is_ok_and_the_report_has_exactly_these_keys():
    card = score(GOOD)
    assert card.ok, card.problems
    assert card.to_json() == {
        "ticks": {"due": 6, "fired": 6, "duplicates": 0, "missed": 0},
        "jobs": {
            "enqueued": 4,
            "done": 4,
            "lost": 0,
            "ran_twice": 0,
            "rerun_after_kill": 2,
            "cut_short": 1,
        },
        "takeover_seconds": 0.25,
        "recovery_seconds": 0.4,
        "ok": True,
    }


def test_a_tick_with_two_jobs_is_a_duplicate():
    card = verdict(runs=[*GOOD.runs, run(200, 3.5, 3.6, tick=3)])
    assert card.duplicates == 1 and card.fired == 6
    assert not card.ok and "more than once" in card.problems[0]


def test_a_tick_whose_job_ran_twice_is_a_duplicate_unless_the_killed_process_held_it():
    runs = [*GOOD.runs, run(101, 3.5, 3.6, tick=1, attempt=2)]
    assert verdict(runs=runs).duplicates == 1
    excused = verdict(runs=runs, deaths=[replace(DEATH, held=DEATH.held | {job(101)})])
    assert excused.duplicates == 0 and excused.rerun_after_kill == 3 and excused.ok


def test_a_tick_that_no_handler_saw_is_missed():
    card = verdict(runs=[r for r in GOOD.runs if r.tick_at != at(3)])
    assert (card.due, card.fired, card.missed, card.ok) == (6, 5, 1, False)


def test_a_tick_whose_handler_never_ended_is_missed():
    runs = [r._replace(finished_at=None) if r.tick_at == at(3) else r for r in GOOD.runs]
    assert verdict(runs=runs).missed == 1


def test_a_schedule_that_stood_still_before_the_end_missed_the_rest():
    card = verdict(until=at(8.5))
    assert (card.due, card.missed, card.ok) == (9, 3, False)


def test_a_tick_at_a_moment_that_was_not_due_is_not_ok():
    strange = run(200, 3.5, 3.6, tick=3)._replace(tick_at=at(3.5))
    assert not verdict(runs=[*GOOD.runs, strange]).ok


def test_a_schedule_that_never_fired_is_not_ok():
    card = verdict(decided=(None, None), runs=[r for r in GOOD.runs if r.tick_at is None])
    assert card.due == 0 and not card.ok


def test_a_job_that_nobody_ran_is_lost():
    card = verdict(enqueued=[*GOOD.enqueued, job(9)])
    assert (card.enqueued, card.done, card.lost, card.ok) == (5, 4, 1, False)


def test_a_job_that_began_and_never_ended_is_lost():
    card = verdict(runs=[r for r in GOOD.runs if not (r.job == job(3) and r.attempt == 2)])
    assert card.lost == 1 and not card.ok
    assert card.recovery_seconds is None and "a recovery was not observed" in card.problems


def test_a_job_that_ran_twice_is_not_ok():
    card = verdict(runs=[*GOOD.runs, run(2, 3.0, 3.1, attempt=2)])
    assert card.ran_twice == 1 and card.rerun_after_kill == 2 and not card.ok


def test_a_job_that_the_killed_process_had_finished_and_written_must_not_run_again():
    done = [run(5, 0.5, 0.6, worker=KILLED), run(5, 2.5, 2.6, attempt=2)]
    card = verdict(runs=[*GOOD.runs, *done], enqueued=[*GOOD.enqueued, job(5)])
    assert card.ran_twice == 1 and not card.ok


def test_what_the_database_still_holds_or_gave_up_is_not_ok():
    assert not verdict(open_jobs=1).ok
    assert not verdict(bad_jobs=1).ok
    assert not verdict(troubles=["pid 5 ended by itself"]).ok


def test_a_run_without_a_kill_or_without_a_new_leader_is_not_ok():
    assert not verdict(deaths=[], runs=[*TICKS, *JOBS, *CUT[1::2]]).ok
    card = verdict(deaths=[replace(DEATH, led_again_at=None)])
    assert card.takeover_seconds is None and not card.ok


def test_the_worst_of_several_kills_counts_and_has_a_limit():
    later = Death(OTHER, at(6), 2, frozenset(), led_again_at=at(7))
    runs = [*GOOD.runs, run(6, 5.5, None), run(6, 6.6, 8.6, worker="host:33:cccccc", attempt=2)]
    both = verdict(deaths=[DEATH, later], runs=runs)
    assert (both.takeover_seconds, both.recovery_seconds, both.ok) == (1.0, 0.6, True)
    assert not verdict(deaths=[DEATH, later], runs=runs, limit_seconds=0.9).ok


def test_what_ran_again_is_shown_with_its_cause():
    shown = dict(lines(score(GOOD), 1.0))
    assert shown["repeated because of a fault"] == "2: 1 cut short, 1 ended but not recorded"
    assert shown["repeated without a cause"] == "0"
    assert shown["jobs"] == "4 enqueued, 4 done, 0 lost"


# -- the picture -----------------------------------------------------------------------------------
def picture(seconds: float) -> Picture:
    return Picture(
        seconds=seconds,
        phase="running",
        rows=[Row(11, "killed"), Row(22, "leads", 2, 3)],
        ticks=[(at(1), OTHER)],
        ticks_done=1,
        enqueued=5,
        jobs_done=4,
    )


def test_a_pipe_gets_one_line_a_second_and_the_story_goes_first(capsys):
    screen, shown = PlainScreen(), picture(1.0)
    for seconds in (1.0, 1.3, 1.9):
        shown.seconds = seconds
        screen.update(shown)
    shown.stories += [(2.0, "killed leader pid 11"), (2.1, "pid 22 leads after 0.1 s")]
    shown.seconds = 2.2
    screen.update(shown)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "pid 22 leads (term 2)" in lines[0] and "4 done, 3 running" in lines[0]
    assert "killed leader pid 11; pid 22 leads after 0.1 s" in lines[1]


def test_the_live_picture_shows_who_leads_who_was_killed_and_who_ran_each_tick():
    from rich.console import Console

    shown = picture(4.0)
    shown.stories.append((2.0, "killed leader pid 11"))
    out = io.StringIO()
    Console(file=out, width=100).print(_render(shown))
    text = out.getvalue()
    for part in ("leads, term 2", "killed", "12:00:01", "killed leader pid 11", "Ctrl-C"):
        assert part in text, text


def test_while_the_processes_stop_it_is_not_said_that_nobody_leads():
    shown = picture(9.0)
    shown.rows = [Row(22, "stopping")]
    assert counters(shown).startswith("nobody leads")
    for phase, words in ((STOPPING, "the processes stop"), ("ended", "the processes have stopped")):
        shown.phase = phase
        assert counters(shown).startswith(f"{words} ")


def test_no_more_jobs_are_shown_done_than_enqueued():
    """A job may be done before its enqueue has returned."""
    fleet, shown = SimpleNamespace(workers=[]), picture(1.0)
    stage: Any = SimpleNamespace(picture=shown, seconds=1.0, enqueued=[job(1)], fleet=fleet)
    screen: Any = SimpleNamespace(update=lambda picture: None)
    watcher = Watcher(stage, screen)
    watcher._look = Look(2, 0, open_jobs=0, bad_jobs=0, running={}, ticks=[])
    watcher.refresh()
    assert (shown.enqueued, shown.jobs_done) == (1, 1)


# -- what people broke -----------------------------------------------------------------------------
FROZEN = Act("freeze", "blue-1 11", "pid 11 was frozen (SIGSTOP)", 2.0, KILLED, outcome="well")


def test_what_a_frozen_process_held_may_run_again_and_nothing_else_may():
    again = [run(5, 1.0, 3.0, worker=KILLED), run(5, 2.5, 2.6, attempt=2)]
    more = {"runs": [*GOOD.runs, *again], "enqueued": [*GOOD.enqueued, job(5)]}
    assert verdict(**more).ran_twice == 1
    excused = verdict(**more, acts=[replace(FROZEN, held=frozenset({job(5)}))])
    assert excused.ok and excused.ran_twice == 0
    assert verdict(**more, acts=[replace(FROZEN, cut=frozenset({job(5)}))]).ok
    assert not verdict(**more, acts=[replace(FROZEN, held=frozenset({job(6)}))]).ok


def test_what_was_not_well_again_is_a_problem_and_acts_are_in_the_report():
    held = replace(FROZEN, held=DEATH.held)
    assert verdict(acts=[held], deaths=[]).problems == (), "somebody broke something else"
    card = verdict(acts=[replace(FROZEN, failed=True, outcome="did not recover within 25 s")])
    assert card.problems == ("pid 11 was frozen (SIGSTOP): did not recover within 25 s",)
    [act] = verdict(acts=[FROZEN]).to_json()["acts"]
    assert act["kind"] == "freeze" and act["at_seconds"] == 2.0
