"""What ``status`` says is wrong, from made-up facts: each problem by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from leasework import errors
from leasework.cli.overview import of_facts
from leasework.lease.guard import ClockWatch
from leasework.model.moments import duration
from leasework.store.reports import Summary
from leasework.store.rows import (
    DeathView,
    EventView,
    FailingSchedule,
    LeaderView,
    NodeView,
    QueueView,
    ScheduleLag,
    TaskFailures,
)
from leasework.watch.checks import CHECKS, KINDS, database_problem, problems
from leasework.watch.facts import Facts
from leasework.watch.finding import Finding
from tests.support.rows import DEATH, EVENT, LEADER, NODE, NOW, SCHEDULE, TRANSACTION

CALM = Summary(
    stranded=0,
    waiting=0,
    unknown=0,
    quarantined=0,
    unknown_tasks=(),
)


def node(**changes: Any) -> NodeView:
    return NODE._replace(**changes)


def due(queue: str, seconds: float | None, ready: int = 1, running: int = 0) -> QueueView:
    return QueueView(queue, ready, running, False, seconds, None)


def leader(**changes: Any) -> LeaderView:
    return LEADER._replace(**changes)


def schedule(**changes: Any) -> ScheduleLag:
    return SCHEDULE._replace(**changes)


WELL = Facts(NOW, CALM, [node()], [leader()], [schedule()], [])


def wrong(**changes: Any) -> list[Finding]:
    return problems(structs.replace(WELL, **changes))


def test_events_of_a_node_that_has_left_belong_to_whoever_asks():
    gone = EVENT._replace(worker_id="h:1:gone", at=NOW)
    theirs = EVENT._replace(worker_id=NODE.worker_id, at=NOW)
    facts = structs.replace(WELL, nodes=[node(app="billing")], events=[gone, theirs])
    assert facts.of_apps(["shop"]).events == [gone]
    assert facts.of_apps(["billing"]).events == [gone, theirs]


def only(found: list[Finding], kind: str) -> Finding:
    assert [p.kind for p in found] == [kind], found
    assert found[0].do
    return found[0]


def test_nothing_is_wrong_with_a_healthy_application():
    assert problems(WELL) == []


def test_no_node_at_all_is_one_problem_and_not_one_for_each_missing_thing():
    only(wrong(nodes=[], leaders=[leader(node=None)]), "no_live_node")
    lock_only = node(app="", executes=False, queues={})
    only(wrong(nodes=[lock_only], leaders=[leader(node=None)]), "no_live_node")


def test_a_node_older_than_its_lease_is_named_and_does_not_count_as_alive():
    silent = only(wrong(nodes=[node(age_seconds=10.5)]), "no_live_node").symptoms[0]
    assert silent.kind == "node_silent"
    assert "web1:10:abcdef" in silent.sentence and "10 s" in silent.sentence
    only(wrong(nodes=[node(), node(id="n2", age_seconds=99)]), "node_silent")


FREE = {"node": None, "holder": None}


@pytest.mark.parametrize("leaders", [[], [leader(**FREE, age_seconds=16.0)], [leader(name="else")]])
def test_an_application_that_nobody_leads_is_named(leaders):
    assert "'shop'" in only(wrong(leaders=leaders), "no_leader").sentence


def test_nobody_leads_is_said_only_when_a_takeover_has_had_its_time():
    assert wrong(leaders=[leader(**FREE, age_seconds=14.0)]) == []
    just_started = node(started_at=NOW - timedelta(seconds=14))
    assert wrong(leaders=[], nodes=[just_started]) == []
    assert wrong(leaders=[leader(**FREE, age_seconds=900.0)], nodes=[just_started]) == []
    only(wrong(leaders=[], nodes=[node(started_at=NOW - timedelta(seconds=16))]), "no_leader")


def test_a_leader_whose_renewal_is_older_than_its_lease_is_named():
    problem = only(wrong(leaders=[leader(age_seconds=95.0)]), "leader_silent")
    assert "web1:10:abcdef" in problem.sentence and "1 min 35 s" in problem.sentence


def test_a_leader_whose_worker_is_forgotten_is_named_by_its_node():
    problem = only(wrong(leaders=[leader(holder=None, age_seconds=95.0)]), "leader_silent")
    assert str(NODE.id) in problem.sentence


def test_an_election_of_ones_own_without_a_holder_is_no_problem():
    assert wrong(leaders=[leader(), leader(name="content-engine", node=None)]) == []


def test_a_silent_schedule_is_named():
    late = schedule(late_seconds=3 * 86_400.0)
    assert "3 d" in only(wrong(schedules=[late]), "schedule_silent").sentence
    assert wrong(schedules=[schedule(late_seconds=9.0)]) == []


def test_a_schedule_whose_last_tick_lies_ahead_of_the_clock_is_named():
    ahead = schedule(ahead_seconds=3600.0)
    assert "1 h" in only(wrong(schedules=[ahead]), "schedule_ahead").sentence


def test_a_paused_schedule_is_only_worth_knowing():
    problem = only(
        wrong(schedules=[schedule(paused=True, ahead_seconds=3600.0)]), "schedule_paused"
    )
    assert problem.info


def test_an_overdue_job_is_named_with_its_task_and_worker():
    overdue = [{"id": "j1", "task": "shop.report", "seconds": 3725.0, "timeout": None}]
    problem = only(wrong(nodes=[node(info={"overdue": overdue})]), "job_overdue")
    assert problem.sentence == (
        "Job j1 (shop.report) has been running for 1 h 2 min on web1:10:abcdef, "
        "and it has no timeout"
    )
    overdue[0]["timeout"] = 60.0
    problem = only(wrong(nodes=[node(info={"overdue": overdue})]), "job_overdue")
    assert problem.sentence.endswith(", and its timeout is 1 min")


@pytest.mark.parametrize(
    "info", [None, {}, {"overdue": "x"}, {"overdue": ["x"]}, {"overdue": None}]
)
def test_what_another_version_wrote_in_its_info_is_survived(info):
    assert wrong(nodes=[node(info=info)]) == []
    assert wrong(nodes=[node(info={"overdue": [{}]})])[0].kind == "job_overdue"


def test_jobs_held_back_for_an_unknown_task_are_named():
    summary = structs.replace(CALM, unknown=2, unknown_tasks=("shop.new", "shop.other"))
    problem = only(wrong(summary=summary), "task_unknown")
    assert "shop.new, shop.other" in problem.sentence and "2 jobs" in problem.sentence
    many = structs.replace(CALM, unknown=999, unknown_tasks=[f"task_{n}" for n in range(999)])
    problem = only(wrong(summary=many), "task_unknown")
    assert problem.sentence.endswith("the task: task_0, task_1, task_2, task_3 and 995 more")


def test_jobs_that_no_worker_can_read_are_counted_by_task():
    def held(number: int, job: str, task: str) -> EventView:
        return event("job_unreadable", number, job=job, task=task, error="no codec")

    some = [held(1, "a", "mail"), held(2, "b", "mail"), held(3, "c", "pay"), held(4, "c", "pay")]
    found = [p for p in wrong(events=some) if p.kind == "job_unreadable"]
    assert [p.sentence.partition(" held")[0] for p in found] == [
        "2 jobs of task 'mail' are",
        "Job c of task 'pay' is",
    ]
    assert "cancel b" in found[0].do


def test_the_overview_does_not_subtract_from_a_number_where_counting_stopped():
    many = due("default", 1.0, ready=10_000, running=9_000)._replace(capped=True)
    lines = of_facts(structs.replace(WELL, queues=[many]), "leasework").lines
    assert lines["jobs"].startswith("1,000+ available, 9,000 running, ")


def test_quarantined_jobs_are_counted_and_a_capped_count_says_so():
    assert (
        "1 job is"
        in only(wrong(summary=structs.replace(CALM, quarantined=1)), "job_quarantined").sentence
    )
    many = only(wrong(summary=structs.replace(CALM, quarantined=10_000)), "job_quarantined")
    assert "10,000 or more" in many.sentence


def test_a_queue_that_no_live_node_works_is_named():
    both = [due("default", 1.0), due("mail", 1.0)]
    assert "'mail'" in only(wrong(queues=both), "queue_unworked").sentence
    web = node(id="n2", executes=False, queues={"mail": 1})
    assert only(wrong(queues=both, nodes=[node(), web]), "queue_unworked")
    dead = node(id="n2", queues={"mail": 1}, age_seconds=60.0)
    assert "queue_unworked" in [p.kind for p in wrong(queues=both, nodes=[node(), dead])]
    assert wrong(queues=both, nodes=[node(queues={"default": 1, "mail": 1})]) == []


def test_a_queue_whose_oldest_job_waits_too_long_is_named():
    assert wrong(queues=[due("default", 59.0)]) == []
    late = [due("default", 61.0)]
    assert "'default'" in only(wrong(queues=late), "queue_overdue").sentence
    assert wrong(queues=late, overdue_seconds=90.0) == []
    strange = structs.replace(CALM, unknown=1, unknown_tasks=("shop.new",))
    found = {problem.kind: problem.do for problem in wrong(queues=late, summary=strange)}
    assert "a worker that knows shop.new" in found["queue_overdue"]
    only(wrong(queues=[due("mail", 3600.0)]), "queue_unworked")


def failure(number: int, **changes: Any) -> EventView:
    fields = {"service": "periodic", "error": f"KeyError: {number}"}
    row = EVENT._replace(
        id=number, at=NOW - timedelta(minutes=1), kind="service_failed", fields=fields
    )
    return row._replace(**changes)


def test_a_service_that_failed_lately_is_told_once_with_its_newest_error():
    problem = only(wrong(events=[failure(2), failure(1)]), "service_failed")
    assert "periodic" in problem.sentence and "KeyError: 2" in problem.sentence
    assert wrong(events=[failure(1, at=NOW - timedelta(hours=1)), failure(2, kind="x")]) == []


def test_many_refused_logins_are_told_with_where_they_came_from():
    def refused(number: int) -> EventView:
        fields = {"came_from": f"10.0.0.{number % 2}"}
        return failure(number, kind="login_refused", fields=fields)

    problem = only(wrong(events=[refused(n) for n in range(1, 12)]), "logins_refused")
    assert problem.sentence == "The dashboard refused 11 logins lately, from 10.0.0.1, 10.0.0.0"
    assert wrong(events=[refused(n) for n in range(9)]) == []


def test_live_nodes_of_different_versions_are_a_problem():
    problem = only(wrong(nodes=[node(), node(id="n2", version="1.1")]), "versions_differ")
    assert "1.0, 1.1" in problem.sentence


def test_what_is_only_worth_knowing_comes_last():
    found = wrong(
        schedules=[schedule(paused=True)],
        summary=structs.replace(CALM, quarantined=1),
        queues=[due("default", 100.0)],
    )
    assert [p.info for p in found] == [False, False, True]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.SchemaMissing("x", do="Run: leasework schema apply"), "schema_missing"),
        (errors.SchemaTooOld("x"), "schema_behind"),
        (errors.SchemaTooNew("x"), "schema_ahead"),
        (errors.ReadOnlyServer("x"), "database_read_only"),
        (errors.WrongPassword("x"), "database_refuses"),
        (errors.Conflict("x"), "database_away"),
        (errors.ConfigError("x"), "error"),
    ],
)
def test_a_database_that_cannot_be_asked_is_the_one_problem(error, kind):
    problem = database_problem(error)
    assert problem.kind == kind and problem.do


def test_the_problem_with_a_database_keeps_what_it_said():
    error = errors.Unavailable("the database did not answer", got="connection\n refused")
    assert database_problem(error).sentence == "The database did not answer: connection refused"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (42.2, "42 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (3600, "1 h"),
        (7625, "2 h 7 min"),
        (3 * 86400 + 4 * 3600, "3 d 4 h"),
    ],
)
def test_durations_are_said_in_two_units_at_most(seconds, words):
    assert duration(seconds) == words


def test_a_process_that_takes_part_for_its_locks_alone_needs_no_leader():
    assert wrong(nodes=[node(), node(app="")]) == []


# -- what went wrong lately, and around the processes -------------------------------------------
def event(kind: str, number: int = 1, seconds_ago: float = 5.0, **fields: Any) -> EventView:
    moment = NOW - timedelta(seconds=seconds_ago)
    return EVENT._replace(id=number, at=moment, kind=kind, fields=fields)


def test_a_node_that_missed_three_renewals_is_named_before_its_lease_is_over():
    assert wrong(nodes=[node(age_seconds=5.9)]) == []
    sentence = only(wrong(nodes=[node(age_seconds=6.1)]), "renewal_late").sentence
    assert "web1:10:abcdef" in sentence and "every 2.0 s" in sentence and "6.1 s ago" in sentence


def test_two_live_nodes_that_say_they_lead_are_named():
    began = NOW - timedelta(seconds=60)
    led = leader(acquired_at=began)
    one = node(heartbeat=NOW, info={"leads": {"shop": 3}})
    other = node(id="n2", worker_id="web2:11:fedcba", heartbeat=NOW, info={"leads": {"shop": 2}})
    sentence = only(wrong(nodes=[one, other], leaders=[led]), "two_claimants").sentence
    assert "web1:10:abcdef, web2:11:fedcba" in sentence
    assert wrong(nodes=[one], leaders=[led]) == []
    # what it said before the other's term began counts for nothing: it has resigned since
    before = other._replace(heartbeat=began)
    assert wrong(nodes=[one, before], leaders=[led]) == []
    # nor does what a dead one said
    assert "two_claimants" not in {
        p.kind for p in wrong(nodes=[one, other._replace(age_seconds=11.0)], leaders=[led])
    }


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (
            "lock_lost",
            {"name": "engine", "why": "ended"},
            "lost the lock 'engine': ended",
        ),
        ("tick_missed", {"schedule": "nightly", "first": "1", "last": "2"}, "from 1 to 2"),
        ("tick_missed", {"schedule": "nightly", "first": "1", "last": "1"}, "moments of 1"),
        ("deadline_breached", {"name": "report", "due": "noon", "callback": "page"}, "due noon"),
        ("clock_jumped", {"by": -3600.0}, "moved back by 1 h"),
        ("clock_jumped", {"by": 2.5}, "moved forward by 2.5 s"),
    ],
)
def test_what_happened_lately_is_a_problem_for_ten_minutes(kind, fields, words):
    assert words in only(wrong(events=[event(kind, **fields)]), kind).sentence
    assert wrong(events=[event(kind, 1, 601.0, **fields)]) == []


def test_of_several_events_the_newest_of_each_subject_is_told():
    events = [
        event("deadline_breached", 1, 50.0, name="a", due="1"),
        event("deadline_breached", 2, 5.0, name="a", due="2"),
        event("deadline_breached", 3, 9.0, name="b", due="3"),
    ]
    first, second = wrong(events=events)
    assert "due 2, and 1 before it" in first.sentence and "'b'" not in first.sentence
    assert "due 3" in second.sentence


def test_breaches_and_the_clock_are_everybodys_business_also_when_one_application_is_asked_for():
    events = [event("deadline_breached", name="a")._replace(worker_id=None)]
    found = problems(structs.replace(WELL, events=events), ["shop"])
    assert [problem.kind for problem in found] == ["deadline_breached"]


def test_a_node_without_wake_ups_is_named_and_one_that_just_started_is_not():
    assert wrong(nodes=[node(info={"deaf_seconds": 5.0})]) == []
    only(wrong(nodes=[node(info={"deaf_seconds": 7.0})]), "wakeups_lost")


def test_a_typing_error_in_the_name_of_a_task_is_told() -> None:
    summary = structs.replace(WELL.summary, unknown=2, unknown_tasks=["shop.mial", "other"])
    problem = only(wrong(summary=summary, nodes=[node(tasks=("shop.mail",))]), "task_unknown")
    assert problem.sentence.endswith("task: shop.mial, other (Did you mean 'shop.mail'?)")
    newer = structs.replace(WELL.summary, unknown=2, unknown_tasks=["shop.mail (version 2)"])
    problem = only(wrong(summary=newer, nodes=[node(tasks=("shop.mail",))]), "task_unknown")
    assert problem.sentence.endswith("task: shop.mail (version 2)")


def test_two_applications_that_run_each_others_jobs_are_told() -> None:
    mine = node(app="shop", tasks=("hello", "send"), queues={"default": 1})
    for other in ({"tasks": ("bye",)}, {"queues": {"other": 1}}, {"executes": False}):
        told = wrong(nodes=[mine, mine._replace(app="blog", **other)])
        assert "task_shared" not in {problem.kind for problem in told}
    told = wrong(nodes=[mine, mine._replace(app="blog")])
    [shared] = [problem for problem in told if problem.kind == "task_shared"]
    assert shared.info
    assert shared.sentence == (
        "The applications 'blog' and 'shop' both run the task 'hello' and 1 more from the queue "
        "'default'"
    )


def test_a_node_whose_loop_is_stuck_is_named() -> None:
    assert wrong(nodes=[node(info={"loop_stuck": 0.0})]) == []
    problem = only(wrong(nodes=[node(info={"loop_stuck": 24.4})]), "loop_stuck")
    assert "has not run its event loop for 24" in problem.sentence


def test_a_node_that_cannot_start_processes_is_a_problem() -> None:
    assert wrong(nodes=[node(info={"cannot_start": ""})]) == []
    only(wrong(nodes=[node(info={"cannot_start": "Too many open files"})]), "cannot_start")


def test_a_halted_node_is_a_note():
    [told] = wrong(nodes=[node(info={"halted": True}), node()])
    assert told.kind == "node_halted" and told.info and "claims no jobs" in told.sentence
    assert told.do == f"leasework nodes resume {told.sentence.split()[1]}"


def test_who_pins_is_named_with_what_to_type():
    problem = only(wrong(transactions=[TRANSACTION]), "xmin_pinned")
    assert "ada psql" in problem.sentence and "5 min 1 s" in problem.sentence
    assert problem.do == "End it: select pg_terminate_backend(77)"
    assert wrong(transactions=[TRANSACTION._replace(open_seconds=299.0)]) == []
    assert wrong(transactions=[TRANSACTION], pin_seconds=400.0) == []
    prepared = TRANSACTION._replace(what="prepared transaction", pid="gid-1")
    assert only(wrong(transactions=[prepared]), "xmin_pinned").do == "rollback prepared 'gid-1'"


def test_a_slot_that_nobody_uses_is_a_problem_once_it_is_old():
    changes: dict[str, Any] = {"pid": "old", "what": "replication slot", "open_seconds": None}
    slot = TRANSACTION._replace(**changes, state="inactive")
    assert "pg_drop_replication_slot('old')" in only(wrong(transactions=[slot]), "xmin_pinned").do
    hidden = slot._replace(what="transaction", pid="77", role="reports", state=None)
    assert wrong(transactions=[hidden]) == []
    older = hidden._replace(xmin_age=1_000_001)
    assert "reports (77)" in only(wrong(transactions=[older]), "xmin_pinned").sentence
    standby = older._replace(what="standby", application="replica1")
    assert "on a standby (replica1)" in only(wrong(transactions=[standby]), "xmin_pinned").sentence
    assert wrong(transactions=[slot._replace(xmin_age=100_000)]) == []
    assert wrong(transactions=[slot._replace(state="active")]) == []


# -- failures, crashes, schedules that fail ------------------------------------------------------
def failing_task(**changes: Any) -> TaskFailures:
    return TaskFailures("send", 0, 0, 0, NOW, "ValueError: no")._replace(**changes)


@pytest.mark.parametrize(
    ("discarded", "finished", "said"),
    [
        (1, 1, True),  # a quiet shop: each one counts
        (1, 100, True),
        (1, 101, False),  # a busy one: a share of all
        (9, 1000, False),
        (10, 1000, True),
        (500, 0, True),  # nothing has been counted yet
    ],
)
def test_discarded_jobs_are_a_problem_from_one_in_a_hundred_on(discarded, finished, said):
    row = failing_task(discarded=discarded, finished=finished)
    found = wrong(failures=[row])
    assert [p.kind for p in found] == (["jobs_discarded"] if said else [])
    if said:
        assert f"{discarded} of" in found[0].sentence and "'send'" in found[0].sentence
        assert "ValueError: no" in found[0].sentence and "--task send" in found[0].do


@pytest.mark.parametrize(
    ("failed", "finished", "said"),
    [(4, 0, False), (5, 0, True), (5, 45, True), (5, 46, False), (99, 901, False)],
)
def test_failed_attempts_are_a_problem_from_five_and_one_in_ten_on(failed, finished, said):
    found = wrong(failures=[failing_task(failed=failed, finished=finished)])
    assert [p.kind for p in found] == (["jobs_failing"] if said else [])


def dead(number: int, seconds_ago: float, **changes: Any) -> DeathView:
    died_at, worker_id = NOW - timedelta(seconds=seconds_ago), f"web{number}:7:abcdef"
    return DEATH._replace(worker_id=worker_id, died_at=died_at, **changes)


def test_a_dead_node_is_a_problem_for_ten_minutes_and_then_a_note():
    problem = only(wrong(died=[dead(1, 180)]), "node_died")
    assert problem.sentence == "Node web1:7:abcdef died 3 min ago, 2 jobs were rescued"
    assert not problem.info and "leasework nodes seen" in problem.do
    assert only(wrong(died=[dead(1, 601)]), "node_died").info


def test_three_deaths_within_five_minutes_are_a_crash_loop():
    apart = [dead(1, 10), dead(2, 20), dead(3, 301)]
    assert [p.kind for p in wrong(died=apart)] == ["node_died"]
    two_apps = [dead(1, 10), dead(2, 20), dead(3, 30, app="b")]
    assert [p.kind for p in wrong(died=two_apps)] == ["node_died", "node_died"]
    loop = only(wrong(died=[dead(n, 10.0 * n) for n in range(1, 6)]), "crash_loop")
    (died,) = loop.symptoms
    assert died.kind == "node_died" and "5 nodes of 'shop' died" in died.sentence
    assert "10 jobs were rescued" in died.sentence and "and 2 more" in died.sentence
    assert "leasework nodes seen" in died.do and " it" not in died.do
    assert "5 died within 5 min" in loop.sentence and "ran jobs" not in loop.sentence
    with_jobs = [dead(n, 10.0 * n, tasks=["resize", "mail"]) for n in range(1, 4)]
    assert "ran jobs of mail, resize" in only(wrong(died=with_jobs), "crash_loop").sentence


def test_a_dead_node_that_was_replaced_is_only_a_note():
    died = [dead(1, 60)]
    assert not only(wrong(died=died, nodes=[node()]), "node_died").info
    new = node(id="n2", started_at=NOW - timedelta(seconds=30))
    note = only(wrong(died=died, nodes=[node(), new]), "node_died")
    assert note.info and note.sentence.endswith("; one has started since")
    assert not only(wrong(died=[*died, dead(2, 50)], nodes=[node(), new]), "node_died").info


def test_a_schedule_whose_jobs_fail_is_named_with_the_error_of_the_last():
    row = FailingSchedule(
        app="shop", name="nightly", task_name="t", job_id="j9", state="discarded",
        finished_at=NOW - timedelta(minutes=3), error="KeyError: 'x'\nTraceback …",
    )  # fmt: skip
    problem = only(wrong(failing=[row]), "schedule_failing")
    assert problem.sentence == (
        "Schedule 'nightly' of 'shop' fails: its last job was discarded 3 min ago: KeyError: 'x'"
    )
    assert problem.do.endswith("leasework jobs retry j9")
    kinds = {found.kind for found in problems(structs.replace(WELL, failing=[row]), ["other"])}
    assert "schedule_failing" not in kinds


def test_moments_missed_in_a_short_stop_are_a_note_and_in_a_long_one_a_problem():
    fields = {"schedule": "nightly", "first": "1", "last": "2"}
    short = only(wrong(events=[event("tick_missed", stopped=10.0, **fields)]), "tick_missed")
    assert short.info and "before the leading process had started" in short.sentence
    long = event("tick_missed", stopped=61.0, **fields)
    missed = only(wrong(events=[long]), "tick_missed")
    assert not missed.info and ", before the leading process had started (" in missed.sentence
    assert 'With missed="all" in its definition' in missed.do
    on_purpose = only(wrong(events=[event("tick_missed", paused=True, **fields)]), "tick_missed")
    assert on_purpose.info and "while it was paused" in on_purpose.sentence
    # a deployment after it hides no moment that was missed while a leader was there
    both = [event("tick_missed", 1, 50.0, **fields), event("tick_missed", 2, stopped=5.0, **fields)]
    assert not only(wrong(events=both), "tick_missed").info


# -- the registry ----------------------------------------------------------------------------------
def test_every_check_is_declared_in_full():
    for kind, check in CHECKS.items():
        assert check.kind == kind and check.meaning.endswith(".") and check.hint, kind
        assert (check.find is None) != (check.error is None), kind
        assert check.level in ("wrong", "note"), kind
        assert check.alert in ("critical", "warning", "info"), kind
    assert tuple(kind for kind in CHECKS if not CHECKS[kind].setup) == KINDS


def test_a_problem_for_tools_names_its_page_of_the_documentation():
    (problem,) = wrong(summary=structs.replace(CALM, quarantined=1))
    assert problem.as_json()["docs"] == "reference/checks.md#job_quarantined"


# -- a clock that was set --------------------------------------------------------------------------
def test_a_step_is_seen_and_a_slow_answer_is_none():
    watch = ClockWatch()
    assert watch.step(1000.0, 10.0, 10.1) is None, "there is nothing to compare with"
    assert watch.step(1002.0, 12.0, 12.1) is None
    assert watch.step(1005.5, 14.0, 18.0) is None, "it may have been read at any time between"
    assert watch.step(1010.0, 20.0, 20.1) is None
    forward = watch.step(4612.0, 22.0, 22.1)
    assert forward is not None and 3599 < forward <= 3600
    back = watch.step(1014.0, 24.0, 24.1)
    assert back is not None and -3600 <= back < -3599
    assert watch.step(1016.9, 26.0, 26.1) is None, "less than the tolerance"


def synced(number: int, **fields: Any) -> EventView:
    fields = {"release": "r1", "app": "shop", "kept": [], "dropped": [], **fields}
    return EVENT._replace(id=number, kind="schedules_synced", fields=fields)


def test_schedules_that_processes_of_one_release_take_from_each_other_are_a_problem():
    defined, removed = {"kept": ["a", "b"]}, {"dropped": ["b"]}
    deployed = [synced(1, **defined), synced(2, **removed, release="r2")]
    assert not wrong(events=[*deployed, synced(3, **defined), synced(4, **removed)])
    assert not wrong(events=[synced(1, **removed), synced(2, **removed), synced(3, kept=["a"])])
    [found] = wrong(events=[synced(n, **each) for n, each in enumerate([defined, removed] * 2)])
    assert (
        found.kind == "schedules_disputed" and "'b' of 'shop' was removed 2 times" in found.sentence
    )
