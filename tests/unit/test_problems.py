"""Problems under their causes, silences, and the checks of slow and blocked work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import structs

from leasework import errors
from leasework.store.rows import BlockerView, ConnectionsView, LockCounts, SilenceView
from leasework.watch.checks import CHECKS, database_problems
from leasework.watch.facts import Pace
from tests.support.rows import NOW
from tests.unit.test_checks import FREE, due, leader, node, only, schedule, wrong

HUNG = {"task": "send", "queue": "default", "jobs": 3, "seconds": 40.0, "id": "j1"}
PACE = Pace("send", 0.1, 0.1, 0.4)


def blocker(**changes: Any) -> BlockerView:
    row = BlockerView(
        77, "ann", "psql", "idle in transaction", 40.0, "job", 2, 38.0, "lock table job"
    )
    return row._replace(**changes)


def silence(**changes: Any) -> SilenceView:
    row = SilenceView("queue_overdue", "", NOW + timedelta(hours=1), "ann", "a known import")
    return row._replace(**changes)


def test_all_that_follows_from_a_stop_of_all_workers_is_one_problem():
    problem = only(
        wrong(
            nodes=[node(age_seconds=99.0)],
            leaders=[leader(age_seconds=99.0)],
            schedules=[schedule(name=f"s{n}", late_seconds=90.0) for n in range(30)],
            queues=[due("default", 90.0), due("mail", 90.0)],
        ),
        "no_live_node",
    )
    assert problem.severity == "critical"
    kinds = [symptom.kind for symptom in problem.symptoms]
    assert kinds.count("schedule_silent") == 30
    assert set(kinds) == {"node_silent", "leader_silent", "schedule_silent", "queue_unworked"}


def test_a_chain_of_causes_ends_at_the_first():
    late = [schedule(late_seconds=90.0)]
    silent = node(id="n2", worker_id="web2", age_seconds=99.0)
    gone = [leader(age_seconds=99.0)]
    found = wrong(nodes=[node(), silent], leaders=gone, schedules=late)
    problem = only(found, "node_silent")
    assert [one.kind for one in problem.symptoms] == ["leader_silent", "schedule_silent"]
    assert problem.severity == "critical", "as its gravest symptom"
    freed = wrong(leaders=[leader(**FREE, age_seconds=99.0)], schedules=late)
    assert [one.kind for one in only(freed, "no_leader").symptoms] == ["schedule_silent"]


def test_a_cause_of_one_subject_does_not_explain_another():
    hung = node(queues={"default": 4, "mail": 1}, info={"long": [HUNG]})
    found = wrong(nodes=[hung], pace=[PACE], queues=[due("default", 90.0), due("mail", 90.0)])
    assert {(one.kind, one.subject) for one in found} == {
        ("job_hangs", "queue:default"), ("queue_overdue", "queue:mail"),
    }  # fmt: skip
    hangs = next(one for one in found if one.kind == "job_hangs")
    assert [one.subject for one in hangs.symptoms] == ["queue:default"]


def test_many_problems_of_one_kind_are_one():
    late = [schedule(name=f"s{n}", late_seconds=90.0) for n in range(4)]
    assert len(wrong(schedules=late[:3])) == 3
    problem = only(wrong(schedules=late), "schedule_silent")
    assert problem.sentence.endswith("There are 3 more problems like it")
    assert problem.subject == "" and len(problem.symptoms) == 3


def test_a_problem_says_since_when():
    problem = only(wrong(schedules=[schedule(late_seconds=90.0)]), "schedule_silent")
    assert problem.since == NOW - timedelta(seconds=90)


def test_slots_hang_if_a_job_runs_far_longer_than_its_task_usually_does():
    hung = node(queues={"default": 4}, info={"long": [HUNG]})
    problem = only(wrong(nodes=[hung], pace=[PACE]), "job_hangs")
    assert problem.sentence.startswith("3 of the 4 slots of the queue 'default' hang: the task")
    assert "leasework jobs stack j1" in problem.do
    assert wrong(nodes=[hung]) == [], "of a new task, nobody knows"
    assert wrong(nodes=[hung], pace=[structs.replace(PACE, longest=5.0)]) == []


def test_a_task_is_slow_against_its_own_past():
    slow = structs.replace(PACE, lately=50.0)
    assert "usually take 0.1 s" in only(wrong(pace=[slow]), "task_slow").sentence
    assert wrong(pace=[structs.replace(PACE, lately=0.9)]) == [], "it is still quick"
    assert wrong(pace=[structs.replace(PACE, lately=None)]) == []


def test_the_session_that_blocks_is_named_before_all_that_follows():
    problem = only(wrong(blockers=[blocker()], queues=[due("default", 90.0)]), "lock_wait")
    assert problem.sentence.startswith("The session 77 (ann psql: idle in transaction) has locked")
    assert "pg_terminate_backend(77)" in problem.do
    assert [one.kind for one in problem.symptoms] == ["queue_overdue"]
    assert wrong(blockers=[blocker(open_seconds=1.0, seconds=1.0)]) == []
    assert wrong(blockers=[blocker(table="", waiting=0, seconds=0.0)]) == [], "nobody waits for it"
    unread = errors.Conflict("a lock was not free in time")
    only(database_problems(unread, [blocker()]), "lock_wait")
    only(database_problems(unread), "database_away")


def test_few_connections_left_are_told_by_whom_they_are_missing():
    few = [ConnectionsView("server", "", 118, 117), ConnectionsView("role", "Ann", 1, -1)]
    assert (
        "118 connections of the server are in use, and it allows 117"
        in only(wrong(connections=few), "connections").sentence
    )
    of_role = only(wrong(connections=[ConnectionsView("role", "Ann", 4, 5)]), "connections")
    assert 'alter role "Ann" connection limit 10' in of_role.do
    assert wrong(connections=[ConnectionsView("server", "", 50, 100)]) == []


def test_what_the_server_lacks_is_told_by_the_nodes_that_it_refused():
    full = "could not extend file: No space left on device"
    nodes = [node(info={"refused": full}), node(id="n2", info={"refused": full})]
    problem = only(wrong(nodes=nodes, queues=[due("default", 90.0)]), "server_short")
    assert "refused what 2 nodes asked" in problem.sentence and full in problem.sentence
    assert [one.kind for one in problem.symptoms] == ["queue_overdue"]


def test_a_long_wait_for_a_lock_is_a_note():
    counts = LockCounts(1, 2, 40.0, 0, 0, 0.0)
    note = only(wrong(locks=counts), "lock_awaited")
    assert note.info and note.sentence == "2 wait for locks, the first for 40 s"
    assert wrong(locks=counts._replace(locks_oldest_wait_seconds=20.0)) == []


def test_a_silenced_problem_is_no_problem_until_the_silence_ends():
    late = [due("default", 90.0)]
    told = only(wrong(queues=late, silences=[silence()]), "queue_overdue")
    assert told.info and told.level == "silenced"
    assert "ann" in told.silence and "a known import" in told.silence
    other = silence(subject="queue:mail")
    assert not only(wrong(queues=late, silences=[other]), "queue_overdue").info
    mine = silence(subject="queue:default")
    assert only(wrong(queues=late, silences=[mine]), "queue_overdue").info


def test_a_silence_of_one_holds_also_beside_many_alike():
    late = [due(f"q{n}", 90.0) for n in range(5)]
    works = node(queues={f"q{n}": 1 for n in range(5)})
    mine = silence(subject="queue:q0")
    found = wrong(queues=late, nodes=[works], silences=[mine])
    assert [(one.level, one.subject) for one in found] == [("wrong", ""), ("silenced", "queue:q0")]
    assert len(found[0].symptoms) == 3, "four are told as one"


def test_many_alike_are_as_grave_as_the_gravest():
    gone = [node(id=f"n{n}", worker_id=f"w{n}", age_seconds=99.0) for n in range(5)]
    silent = leader(age_seconds=99.0)
    problem = only(wrong(nodes=[node(), *gone], leaders=[silent]), "node_silent")
    assert problem.severity == "critical"


def test_every_explained_kind_is_a_check():
    for check in CHECKS.values():
        assert set(check.explains) <= set(CHECKS), check.kind
