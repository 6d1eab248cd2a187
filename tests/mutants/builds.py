"""The broken builds: what each one breaks, and which faults reveal it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

Sql = Mapping[str, tuple[tuple[str, str], ...]]
"""``noun/verb`` -> (text, what stands there instead)."""


@dataclass(frozen=True)
class Mutant:
    name: str
    takes_out: str
    aim: tuple[str, ...]
    """The faults that are done, by the names of the methods of ``Faults``."""
    sql: Sql = field(default_factory=dict)
    patch: Callable[[], None] = lambda: None
    seconds: float = 14.0
    every: float = 1.0
    chaos: bool = True
    """False: it can only be seen where this campaign does not go; the simulation's."""


_SEEN = """l.node is not distinct from %(seen_node)s and l.token = %(seen_token)s
      and l.seq = %(seen_seq)s and leasework.timeline() = %(seen_timeline)s"""
_STALE = """(l.node is null
       or l.renewed_at < clock_timestamp() - make_interval(secs => l.lease_seconds))"""
_NEWEST = "where name = %(name)s and token = %(term)s"
_MINE = """and claim_token = cast(%(token)s as bigint)
      and node = cast(%(node)s as uuid)"""
_REFUSE = (
    "case when exists (select 1 from gone) then 1 else leasework.refuse('the claim was lost') end"
)
_RAISED = "token = greatest(l.token + 1, leasework.timeline() - 1 << 32)"
_GONE = "not exists (select 1 from leasework.node n where n.id = j.node)"
_STEAL = """with stolen as (
    update leasework.job j set node = cast(%(node)s as uuid), attempt = j.attempt + 1,
        claim_token = (select leasework.timeline() - 1 << 32) + nextval('leasework.token_seq')
    where j.id = (select x.id from leasework.job x
                  where x.ready and x.node <> cast(%(node)s as uuid)
                    and x.queue = any (cast(%(queues)s as text[]))
                  limit 1 for update skip locked)
    returning j.id, j.task_name, j.queue, j.payload, j.priority, j.attempt, j.max_attempts,
              j.crashes, j.claim_token, j.timeout_seconds, j.requeue_seconds,
              coalesce(j.tick_at, j.run_at), j.history, j.schedule, j.deadlines, j.trace,
              j.version, cast(null as bigint[])
)
select * from stolen union all select id, task_name,"""
_LATE = "renewed_at < clock_timestamp() - make_interval(secs => lease_seconds)"


def _act_at_once() -> None:
    """The candidate does not wait: the statement decides."""
    from leasework.model.lease import Lease, Phase

    def may_act_at(self: Lease) -> float:
        seen = self.watch.seen
        if self.phase is not Phase.FOLLOWER or seen is None:
            return float("inf")
        return self.watch.since + self.jitter

    setattr(Lease, "may_act_at", may_act_at)  # noqa: B010


def _believe_for_ever() -> None:
    from leasework.model.lease import Lease, Phase

    def valid(self: Lease, now: float) -> bool:
        return self.phase is Phase.HOLDER

    def expire(self: Lease, now: float) -> bool:
        return False

    def renewed(self: Lease, token: int, sent_at: float, received_at: float) -> None:
        if token == self.token and self.phase is Phase.HOLDER:
            self.deadline = sent_at + self.timings.trust

    for name, method in {"valid": valid, "expire": expire, "renewed": renewed}.items():
        setattr(Lease, name, method)


def _new_ids_for_each_try() -> None:
    from leasework.store.jobs import JobStore

    enqueue = JobStore.enqueue

    async def anew(self: Any, jobs: Any, limit: int, retried: bool, now: Any) -> Any:
        if retried:
            jobs = [(uuid4(), job) for _, job in jobs]
        return await enqueue(self, jobs, limit, False, now)

    setattr(JobStore, "enqueue", anew)  # noqa: B010


def _no_drain() -> None:
    from leasework.node.node import Node

    async def nothing(self: Node, *claims: object) -> None:
        return None

    for name in ("_drain", "_give_back"):
        setattr(Node, name, nothing)


def _crash_is_an_end() -> None:
    from leasework.jobs.attempt import Attempts
    from leasework.model.outcome import PLAIN

    run = Attempts._run_async

    async def once(self: Attempts, task: Any, claim: Any) -> Any:
        return PLAIN if claim.job.crashes else await run(self, task, claim)

    setattr(Attempts, "_run_async", once)  # noqa: B010


def _take_over_early() -> None:
    from leasework.model.lease import Watch

    def silent_at(self: Watch) -> float:
        return self.since + 3.0 if self.seen else float("inf")

    setattr(Watch, "silent_at", silent_at)  # noqa: B010


SOUND = Mutant(
    "sound",
    "nothing: the same faults, and no check may fail",
    ("pause_leader", "hole_leader", "restart", "crash", "step_database", "lose_answers"),
    seconds=20,
)
MUTANTS = (
    Mutant(
        "no-claim-guard",
        "a claim does not check whether the job is already claimed",
        ("restart", "kill"),
        {"job/claim": (("select id, task_name,", _STEAL),)},
        seconds=6,
    ),
    Mutant(
        "no-idempotency-key",
        "a retried enqueue creates another job",
        ("lose_answers", "hole"),
        patch=_new_ids_for_each_try,
    ),
    Mutant(
        "no-fence",
        "a leader's duty does not check whether a later term was acquired",
        ("pause_leader", "hole_leader"),
        {
            "leasework_lab:chaos/fenced": ((_NEWEST, "where name = %(name)s"),),
            "job/stage": (("exists (select 1 from f)", "true"),),
            "node/bury": (("exists (select 1 from f)", "true"),),
            "schedule/fire": (("exists (select 1 from f)", "true"),),
        },
        seconds=22,
    ),
    Mutant(
        "key-share",
        "the fence is locked FOR KEY SHARE, which does not make a takeover wait",
        ("restart_leader",),
        {
            name: (("for share", "for key share"),)
            for name in ("leasework_lab:chaos/fenced", "job/stage", "node/bury", "schedule/fire")
        },
        seconds=20,
    ),
    Mutant(
        "takeover-by-the-clock",
        "the database's clock decides that a leader is dead",
        ("step_database",),
        {"leader/acquire": ((_SEEN, _STALE),)},
        _act_at_once,
    ),
    Mutant(
        "merged-renew-acquire",
        "one statement renews or takes over, by the clock, and keeps the token",
        ("step_database", "pause_leader"),
        {
            "leader/acquire": (
                (_SEEN, _STALE),
                (_RAISED, "token = greatest(l.token, 1)"),
                ("and f.token < taken.token", ""),
                ("from taken\n), contended", "from taken on conflict do nothing\n), contended"),
            )
        },
        _act_at_once,
    ),
    Mutant(
        "reaper-by-now",
        "the database's clock decides which nodes' jobs are rescued",
        ("step_database",),
        {
            "node/deaths": (
                (
                    "where not settled order by died_at, node",
                    "where not settled union all select id, leasework.worker_id(host, pid, id)"
                    f" from leasework.node where {_LATE}",
                ),
            ),
            "job/rescue": ((_GONE, f"{_GONE[:-1]} and not ({_LATE}))"),),
            "job/stage": (  # the leader looks for jobs of dead nodes when this says so
                (
                    "exists (select 1 from leasework.death where not settled)",
                    "exists (select 1 from leasework.death where not settled)"
                    f" or exists (select 1 from leasework.node where {_LATE})",
                ),
            ),
        },
    ),
    Mutant(
        "renew-after-expiry",
        "a leader believes in its term until the database says otherwise",
        ("hole_leader",),
        patch=_believe_for_ever,
        seconds=22,
    ),
    Mutant(
        "asynchronous-commits",
        "commits are acknowledged before they are on disk",
        ("crash",),
        {"session/settings": (("%(commit)s", "'off'"),)},
    ),
    Mutant(
        "cancel-without-drain",
        "a process that stops deletes its row but leaves its jobs running",
        ("restart",),
        patch=_no_drain,
    ),
    Mutant(
        "crash-is-an-end",
        "a job whose worker died is reported as completed and never runs again",
        ("kill",),
        patch=_crash_is_an_end,
    ),
    Mutant(
        "complete-without-token",
        "the last run completes the job, with its effect",
        ("pause_leader",),
        {
            "user/complete": ((_MINE, ""), (_REFUSE, "1")),
        },
        seconds=25,
    ),
    Mutant(
        "takeover-too-early",
        "a candidate waits for only half a lease",
        ("hole_leader", "pause_leader"),
        patch=_take_over_early,
        seconds=20,
    ),
    Mutant(
        "limit-plus-one",
        "one job more than the limit allows runs at once",
        ("pause_all",),
        {"limit/sync": (("d.concurrency, d.rate,", "d.concurrency + 1, d.rate,"),)},
        seconds=20,
    ),
    Mutant(
        "deaf-suspension",
        "a job is suspended without a look whether its signal has come meanwhile",
        ("pause_all",),
        {"job/ack": (("leasework.has_come(h.id, h.waits)", "false"),)},
        seconds=20,
    ),
    Mutant(
        "token-plus-one",
        "a promotion does not raise the tokens, so a token that was lost in it is issued again",
        (),
        {"leader/acquire": ((_RAISED, "token = l.token + 1"),)},
        chaos=False,
    ),
)  # fmt: skip
BY_NAME = {mutant.name: mutant for mutant in (SOUND, *MUTANTS)}
