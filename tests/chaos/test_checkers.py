"""Each checker sees what it is there for: a history in which all is well, broken in one place."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from leasework_lab.chaos.checkers import Check, judge
from leasework_lab.chaos.counts import GATE, Counts, count, missing, missing_of_one

from tests.chaos.histories import START, TIMES, World, beats, caught, line, somebodys, uuid


@pytest.fixture
def world() -> World:
    return World()


def test_a_history_in_which_all_is_well_has_no_violation_and_everything_was_looked_at(
    world: World,
) -> None:
    checks = world.checks()
    assert not world.verdict()
    idle = {name for name, check in checks.items() if check.verdict == "idle"}
    assert idle == {"overlap", "no change without a fault", "services", "clean stops"}


def test_a_check_that_looked_at_nothing_has_not_held(world: World) -> None:
    check = Check("lost", "every acknowledged enqueue has its job")
    assert check.verdict == "idle"
    check.looked_at = 1
    assert check.verdict == "held"
    assert world.checks()["overlap"].verdict == "idle", "no job ran twice"


def test_without_the_final_read_nothing_that_needs_it_is_held(world: World) -> None:
    checks = {c.name: c for c in judge(world.campaign, None, TIMES)}
    assert checks["lost"].verdict == "unknown"
    assert checks["effect once"].verdict == "unknown"
    assert checks["one believer"].verdict == "held", "the histories are there"


def test_an_acknowledged_job_that_is_nowhere_is_lost(world: World) -> None:
    world.change(jobs=[job for job in world.tables.jobs if job.ref != "p-1"])
    caught(world, "lost", "p-1")


def test_an_enqueue_that_is_two_jobs_is_seen(world: World) -> None:
    world.change(jobs=[*world.tables.jobs, world.job(1, id=UUID(int=77))])
    caught(world, "duplicated", "p-1 has 2 jobs")


def test_a_job_in_both_tables_is_seen(world: World) -> None:
    world.change(jobs=[*world.tables.jobs, world.tick_job(0)])
    assert "exists 2 times" in world.verdict()["duplicated"][0]


def test_a_job_that_nobody_enqueued_is_seen(world: World) -> None:
    world.change(jobs=[*world.tables.jobs, world.job(9)])
    caught(world, "unexpected", "p-9")


def test_half_a_batch_of_unknown_outcome_is_seen(world: World) -> None:
    world.change(jobs=[*world.tables.jobs, world.job(3)])
    caught(world, "recovered", "1 of the 2")


def test_half_a_batch_of_a_killed_producer_is_seen(world: World) -> None:
    world.producer.lines[:] = [e for e in world.producer.lines if e["kind"] != "unknown"]
    assert not world.verdict(), "it was told nothing, and nothing is there"
    world.change(jobs=[*world.tables.jobs, world.job(3)])
    caught(world, "recovered", "1 of the 2")
    world.change(jobs=[*world.tables.jobs, world.job(4)])
    assert not world.verdict()
    assert world.checks()["recovered"].looked_at == 2


def test_the_whole_batch_of_unknown_outcome_is_well(world: World) -> None:
    world.change(jobs=[*world.tables.jobs, world.job(3), world.job(4)])
    assert not world.verdict()
    assert count(world.campaign, world.tables).recovered == 2


def test_a_job_that_is_left_over_is_stuck(world: World) -> None:
    jobs = [world.job(1, state="available"), *world.tables.jobs[1:]]
    world.change(jobs=jobs)
    caught(world, "finished", "still available")


def test_a_job_on_a_node_that_is_gone_is_stuck(world: World) -> None:
    held = world.tick_job(4)._replace(state="running", node_is_there=False)
    world.change(jobs=[*world.tables.jobs[:-1], held])
    caught(world, "finished", "which does not exist")


def test_a_drain_that_did_not_end_is_seen(world: World) -> None:
    world.campaign.drained = False
    caught(world, "finished", "drain")


def test_an_effect_that_was_applied_twice_is_seen(world: World) -> None:
    world.change(effects=[*world.tables.effects, world.tables.effects[0]])
    caught(world, "effect once", "2 times")


def test_a_completed_job_without_its_effect_is_seen(world: World) -> None:
    world.change(effects=[])
    assert "had no effect" in world.verdict()["effect once"][0]


def test_an_effect_of_another_claim_than_the_one_that_completed_is_seen(world: World) -> None:
    world.change(effects=[("p-2", UUID(int=1002), 30)])
    assert "the effect is of claim 30" in world.verdict()["effect once"][0]


def test_a_refused_completion_whose_effect_is_there_is_seen(world: World) -> None:
    refused = line("complete_refused", 7.0, ref="p-2", job=uuid(1002), token=31)
    world.one.lines.append(refused)
    caught(world, "stale completions", "was refused")


MET, BREACHED, PAGE = UUID(int=1006), UUID(int=1007), UUID(int=1008)


@pytest.mark.parametrize(
    "deadlines, words",
    [
        ([(MET, "armed", None), (BREACHED, "breached", PAGE)], "its deadline is armed"),
        (
            [(MET, "met", UUID(int=1002)), (BREACHED, "breached", PAGE)],
            "is met, and its callback is",
        ),
        ([(MET, "met", None), (BREACHED, "breached", None)], "its callback is None"),
        ([(MET, "met", None), (BREACHED, "breached", UUID(int=9))], "which does not exist"),
        ([(MET, "breached", PAGE), (BREACHED, "breached", PAGE)], "belongs to several deadlines"),
        ([(MET, "met", None), (BREACHED, "met", None)], "reports a breach that does not exist"),
        ([(BREACHED, "breached", PAGE)], "has 0 deadlines"),
    ],
)
def test_a_deadline_with_another_verdict_or_callback_than_one_is_seen(
    world: World, deadlines: list, words: str
) -> None:
    world.change(deadlines=deadlines)
    caught(world, "deadline once", words)


def test_a_moment_with_two_jobs_is_seen(world: World) -> None:
    again = world.tick_job(2)._replace(id=UUID(int=88))
    world.change(jobs=[*world.tables.jobs, again])
    caught(world, "tick once", "has 2 jobs")


def test_applications_that_share_a_schema_may_have_schedules_of_the_same_name(
    world: World,
) -> None:
    somebodys(world)
    of_another = world.tick_job(2)._replace(id=UUID(int=88))
    world.change(jobs=[*world.tables.jobs, of_another])
    caught(world, "tick once", "has 2 jobs")
    world.change(ticks=[*world.tables.ticks, world.tick(2, job=UUID(int=88), app="another")])
    assert not world.verdict()


def test_what_somebody_calls_ref_or_discards_is_his(world: World) -> None:
    theirs = [world.job(1, id=UUID(int=77)), world.job(5, state="discarded")]
    world.change(jobs=[*world.tables.jobs, *theirs])
    assert {"duplicated", "finished"} <= world.verdict().keys()
    somebodys(world)
    assert not world.verdict()


def test_a_fired_moment_whose_job_is_nowhere_is_seen(world: World) -> None:
    world.change(jobs=world.tables.jobs[:-1])
    caught(world, "tick once", "but has no job")


def test_a_moment_that_was_passed_over_is_seen(world: World) -> None:
    ticks = [tick for tick in world.tables.ticks if tick.fire_at.second != 2]
    world.change(ticks=ticks, jobs=[j for j in world.tables.jobs if j.scheduled_for.second != 2])
    assert "missed ticks" in world.verdict()


def test_a_schedule_that_fires_no_more_is_seen(world: World) -> None:
    world.campaign.clock = START + timedelta(seconds=9)
    assert not world.verdict()
    world.campaign.clock = START + timedelta(seconds=11)
    caught(world, "missed ticks", "the nodes were told to stop at")


def test_a_schedule_that_never_fired_is_seen(world: World) -> None:
    world.change(ticks=[], jobs=[job for job in world.tables.jobs if job.schedule is None])
    caught(world, "missed ticks", "no tick was ever fired")


def test_without_the_databases_clock_nobody_knows_whether_the_last_ticks_are_there(
    world: World,
) -> None:
    world.campaign.clock = None
    assert world.checks()["missed ticks"].verdict == "unknown"


def test_a_moment_that_counts_as_missed_is_seen(world: World) -> None:
    world.change(ticks=[*world.tables.ticks[:-1], world.tick(4, state="missed")])
    caught(world, "missed ticks", "is missed")


def test_a_term_that_two_processes_had_is_seen(world: World) -> None:
    for entry in world.two.lines:
        if entry.get("of") == "leader":
            entry["token"] = 1
    assert "both had term 1" in world.verdict()["tokens"][0]


def test_a_term_that_went_back_is_seen(world: World) -> None:
    world.one.lines += beats("leader", uuid(1), 2, 58.1, 58.4)
    assert any("after term 2" in text for text in world.verdict()["tokens"])


@pytest.mark.parametrize("later", [{"token": 4, "node": "b"}, {"token": 5, "node": "b"}])
def test_a_leaders_row_that_went_back_or_is_shared_is_seen(world: World, later: dict) -> None:
    row = {"token": 5, "node": "a", "seq": 1}
    world.campaign.rows = [line("row", 1.0, **row), line("row", 2.0, **{**row, **later})]
    caught(world, "tokens", "the leader's row")


def renewals(token: int, node: str, start: float, end: float) -> list[dict]:
    """The leader's row, renewed every second."""
    return [
        line("row", start + number, token=token, node=node, seq=number)
        for number in range(int(end - start) + 1)
    ]


def test_somebodys_application_is_judged_by_its_tables_alone(world: World) -> None:
    somebodys(world)
    world.campaign.rows = [
        *renewals(1, "a", 4.0, 9.0),
        line("row", 10.0, token=1, node=None, seq=9),
        *renewals(2, "b", 26.0, 58.0),
    ]
    caught(world, "leaderless gaps", "nobody led from 10.00 for 16.00 s")
    world.hit("pause", "node1", 14.0, 20.0)
    world.hit("frozen", "database", 14.0, 20.0)
    assert not world.verdict()


def test_a_leader_of_somebodys_application_that_renews_no_more_leads_no_more(
    world: World,
) -> None:
    somebodys(world)
    world.campaign.rows = [*renewals(1, "a", 4.0, 10.0), *renewals(2, "b", 30.0, 58.0)]
    caught(world, "leaderless gaps", "nobody led from 1")


def test_a_claim_that_ran_twice_is_seen(world: World) -> None:
    start = next(entry for entry in world.two.lines if entry["kind"] == "start")
    world.two.lines.append({**start, "at": 9.0})
    assert "as claim 30, after 30" in world.verdict()["tokens"][0]


def test_two_beliefs_that_overlap_by_their_records_are_seen(world: World) -> None:
    world.two.lines[:] = [e for e in world.two.lines if e.get("of") != "leader"]
    world.two.lines += beats("leader", uuid(2), 2, 19.7, 58.0)
    caught(world, "one believer", "0.30 s")


def test_two_beliefs_that_overlap_by_what_was_answered_are_seen(world: World) -> None:
    world.one.lines.append(line("believed", 22.0, token=1, since=20.4, until=22.0))
    caught(world, "one believer", "both led")


def test_a_duty_that_committed_after_a_later_acquisition_is_seen(world: World) -> None:
    world.change(duties=[*world.tables.duties, ("101-2", 1)])
    caught(world, "commit order", "term 1 committed 1 duties after term 2")


def test_a_fenced_duty_that_is_there_is_seen(world: World) -> None:
    world.one.lines.append(line("duty_fenced", 22.0, duty="101-1", term=1, early=False))
    caught(world, "commit order", "duty_fenced")


def test_a_gap_beside_a_process_that_was_well_is_seen(world: World) -> None:
    world.two.lines[:] = [e for e in world.two.lines if e.get("of") != "leader"]
    world.two.lines += beats("leader", uuid(2), 2, 32.0, 58.0)
    caught(world, "leaderless gaps", "nobody led from 20.00 for 12.00 s")


def test_a_node_that_does_not_renew_though_it_is_left_alone_is_seen(world: World) -> None:
    world.one.lines[:] = [
        e for e in world.one.lines if e["kind"] != "renewed" or not 30 < e["at"] < 40
    ]
    caught(world, "renewals", "did not renew")
    world.hit("hole", "node1", 31.0, 36.0)
    assert not world.verdict()


@pytest.mark.parametrize("kind, target", [("pause", "node"), ("frozen", "database")])
def test_a_gap_in_which_something_was_done_to_everybody_is_none(
    world: World, kind: str, target: str
) -> None:
    world.two.lines[:] = [e for e in world.two.lines if e.get("of") != "leader"]
    world.two.lines += beats("leader", uuid(2), 2, 32.0, 58.0)
    for process in (world.one, world.two):
        world.hit(kind, process.name if target == "node" else target, 22.0, 26.0)
    assert not world.verdict()


def test_a_gap_in_which_the_row_changed_hands_starts_anew(world: World) -> None:
    world.two.lines[:] = [e for e in world.two.lines if e.get("of") != "leader"]
    world.two.lines += beats("leader", uuid(2), 2, 32.0, 58.0)
    world.campaign.rows = [
        line("row", 19.0, node=uuid(1), token=1, seq=9, pid=101),
        line("row", 25.5, node=uuid(3), token=2, seq=10),
    ]
    assert not world.verdict()


def test_renewals_of_nobody_who_leads_do_not_hide_a_gap(world: World) -> None:
    world.two.lines[:] = [e for e in world.two.lines if e.get("of") != "leader"]
    world.two.lines += beats("leader", uuid(2), 2, 40.0, 58.0)
    world.campaign.rows = [{**row, "pid": 101} for row in renewals(1, uuid(1), 15.0, 39.0)]
    caught(world, "leaderless gaps", "nobody led from 20.00 for 20.00 s")


def test_a_renewal_that_was_held_back_begins_the_wait_anew(world: World) -> None:
    world.two.lines[:] = [e for e in world.two.lines if e.get("of") != "leader"]
    world.two.lines += beats("leader", uuid(2), 2, 36.0, 58.0)
    world.campaign.rows = [
        line("row", 19.0, node=uuid(1), token=1, seq=9, pid=101),
        line("row", 27.5, node=uuid(1), token=1, seq=10, pid=101),
    ]
    assert list(world.verdict()) == ["leaderless gaps"]
    world.hit("hole", "node1", 18.0, 27.4)
    assert not world.verdict()


def test_a_handler_that_starts_without_a_lease_is_seen(world: World) -> None:
    start = next(entry for entry in world.two.lines if entry["kind"] == "start")
    world.one.lines.append({**start, "job": uuid(55), "node": uuid(9)})
    caught(world, "step down", "without a lease")


def test_a_handler_that_was_about_to_start_when_its_process_was_stopped_may(world: World) -> None:
    start = next(entry for entry in world.two.lines if entry["kind"] == "start")
    world.one.lines.append({**start, "job": uuid(55), "node": uuid(9), "at": 12.01})
    world.hit("pause", "node1", 5.0, 12.0)
    assert not world.verdict()


def test_a_job_that_runs_beside_itself_while_its_first_node_is_alive_is_seen(world: World) -> None:
    start = next(entry for entry in world.two.lines if entry["kind"] == "start")
    world.one.lines.append({**start, "at": 5.2, "token": 40, "node": uuid(1)})
    caught(world, "overlap", "it ran on node2")


def test_a_job_that_goes_on_after_its_process_has_left_is_seen(world: World) -> None:
    world.one.lines += [
        line("start", 58.5, ref="p-1", job=uuid(1001), token=32, node=uuid(1), attempt=2,
             task="nap"),
    ]  # fmt: skip
    world.two.lines.append(
        line("start", 59.5, ref="p-1", job=uuid(1001), token=33, node=uuid(3), attempt=3,
             task="nap")
    )  # fmt: skip
    world.two.lines += beats("node", uuid(3), 13, 59.1, 59.9)
    caught(world, "overlap", "which had left")


def test_a_run_in_which_little_happened_is_void() -> None:
    few = Counts(**{**GATE.to_json(), "unknown": 49})  # type: ignore[arg-type]
    assert missing(few, GATE) == ["49 unknown outcomes, but at least 50 are needed"]
    assert missing(GATE, GATE) == []
    short = Counts(faults=20, acknowledged=2000, terms=1, stale=5)
    assert missing_of_one(short, "process", 26.0, True) == ["1 terms, but at least 2 are needed"]
