"""Judges the record of a whole run. Each check says how much it looked at.

``pg_xact_commit_timestamp`` orders transactions that lock the same job's row.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.limits_fire.faults import Tally
from tests.limits_fire.judge import Check, Record, concurrency
from tests.limits_fire.record import _EPOCH

EPSILON = 1e-5
ENDED = "everything ended"
LOG = f"""
select n, {_EPOCH.format("at")}, {_EPOCH.format("began")},
       {_EPOCH.format("pg_xact_commit_timestamp(xmin)")}, xid::text, what, op, row
from fire.log order by n
"""
EXPECTED = (
    "$|on purpose|ValueError: (on purpose|before the commit)|its worker died|was taken away|fire$"
    "|ran longer than its (timeout|requeue)|TimeoutError|OperationalError|AdminShutdown"
    "|Unavailable: |JobCancelled: the job is being|cancelled|the worker ended it"
    "|Rollback: $"  # of a handler whose connection was cut
)
BAD = ("cancelled", "discarded", "quarantined")


@dataclass(slots=True)
class Entry:
    """One change. ``began``: its transaction; ``done``: when that was committed."""

    n: int
    at: float
    began: float
    done: float
    xid: str
    what: str
    op: str
    row: dict[str, Any]


class History(Record):
    def __init__(
        self, connection: psycopg.Connection[Any], tally: Tally, ledger: list[dict[str, Any]]
    ) -> None:
        super().__init__(connection, tally, ledger)
        self._log: dict[str, list[Entry]] = defaultdict(list)
        self.steps: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        self.finished: dict[str, list[Entry]] = defaultdict(list)
        self.made: dict[str, list[float]] = defaultdict(list)
        """When each job was made, and made again."""
        self.members: dict[str, dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        for row in connection.execute(LOG.encode()):
            entry = Entry(*row)
            self._log[entry.what].append(entry)
            if entry.what == "step":
                self.steps[entry.row["job"], entry.row["name"]].append(entry)
            elif entry.what == "done":
                self.finished[entry.row["id"]].append(entry)
            elif entry.what == "made":
                self.made[entry.row["id"]].append(entry.done)
            if entry.what == "made" and entry.row["batch"]:
                self.members[entry.row["batch"]][entry.row["id"]].append(entry)
        for entries in (*self.steps.values(), *self.finished.values()):
            entries.sort(key=lambda e: (e.done, e.n))
        self.effects = connection.execute(
            "select job::text, name, xid::text from effect"
        ).fetchall()
        self.inbox = {
            row[0] for row in connection.execute("select id from leasework.inbox").fetchall()
        }
        self.left = {row[0] for row in connection.execute("select id::text from leasework.job")}
        self.batches = connection.execute(
            "select id::text, parent::text, total, ended_at is not null from leasework.batch"
        ).fetchall()
        self.errors = connection.execute(
            "select coalesce(error, ''), count(*) from leasework.attempt group by 1"
        ).fetchall()
        self.refused = connection.execute(
            "select fields::text from leasework.event where kind = 'callback_failed'"
        ).fetchall()
        self.live = {(claim.job, claim.token): claim for claim in self.claims}

    def of(self, what: str, op: str = "") -> list[Entry]:
        return [entry for entry in self._log[what] if not op or entry.op == op]

    def ended_before(self, job: str, moment: float) -> Entry | None:
        """The last end of a job until then."""
        return next((e for e in reversed(self.finished.get(job, ())) if e.done <= moment), None)

    def over(self, job: str, moment: float) -> bool:
        """Whether it had ended by then, and had not been made again."""
        end = self.ended_before(job, moment)
        return end is not None and not any(end.done < t < moment for t in self.made[job])


def claims(h: History) -> Check:
    """No step is recorded by a claim that is not live, from its change to its commit."""
    check = Check("each step beside its claim", 0, least=300)
    for e in h.of("step"):
        if e.op == "delete":
            continue
        check.looked_at += 1
        key = e.row["job"], e.row["token"]
        claim, end = h.live.get(key), h.ends.get(key)
        if claim is None or e.done < claim.done - EPSILON:
            check.found.append(f"{key} {e.row['name']} at {e.at:.4f}: no such claim")
        elif end and e.done > end.done + EPSILON:
            check.found.append(
                f"{key} {e.row['name']}: recorded at {e.done:.4f}, lost at {end.done:.4f}"
            )
    return check


def settled(h: History) -> Check:
    check = Check("a recorded step does not change", 0, least=300)
    for key, entries in h.steps.items():
        before: Entry | None = None
        for e in entries:
            check.looked_at += 1
            if before and e.op == "insert":
                check.found.append(f"{key} was made twice")
            closed = before is not None and e.op == "update" and not before.row["open"]
            if (
                closed
                and before
                and (before.row["result"], False)
                != (
                    e.row["result"],
                    e.row["open"],
                )
            ):
                check.found.append(f"{key}: {before.row['result']}, then {e.row['result']}")
            before = None if e.op == "delete" else e
    return check


def value_of(row: dict[str, Any]) -> Any:
    result = row["result"]
    match row["kind"]:
        case "event":
            return result and result["payload"]
        case "gather" if not row["open"]:
            return [each[2] if each[1] == "completed" else None for each in result]
    return result


def seen(h: History) -> Check:
    """Whoever holds the claim sees what is recorded."""
    check = Check("what each run saw of its steps", 0, least=300)
    for line in h.ledger:
        key = line["job"], line["token"]
        end = h.ends.get(key)
        if line["what"] != "saw" or (end and line["at"] > end.done):
            continue
        check.looked_at += 1
        entries = [e for e in h.steps[line["job"], line["step"]] if e.done <= line["at"]]
        if not entries or entries[-1].op == "delete" or entries[-1].row["open"]:
            check.found.append(f"{key} saw {line['step']} = {line['value']}, not recorded")
        elif (recorded := value_of(entries[-1].row)) != line["value"]:
            check.found.append(f"{key} saw {line['step']} = {line['value']}, recorded: {recorded}")
    return check


def effects(h: History) -> Check:
    """Each effect once, in one transaction with its record, until that is forgotten."""
    check = Check("effects with their records", len(h.effects), least=50)
    made: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job, name, xid in h.effects:
        made[job, name].append(xid)
    recorded = {
        key: [e.xid for e in entries if e.op == "insert"]
        for key, entries in h.steps.items()
        if key[1].startswith("pay")
    }
    for key in made.keys() | recorded.keys():
        if sorted(made[key]) != sorted(recorded.get(key, [])):
            check.found.append(f"{key}: effects in {made[key]}, records in {recorded.get(key)}")
    return check


def signals(h: History) -> Check:
    """Each is taken once and recorded by the same transaction, or left to the pruner."""
    check = Check("each signal", 0, least=50)
    taken: dict[int, list[Entry]] = defaultdict(list)
    for e in h.of("signal", "delete"):
        taken[e.row["id"]].append(e)
    by_xid: dict[str, list[Entry]] = defaultdict(list)
    for e in h.of("step", "update"):
        by_xid[e.xid].append(e)
    sent = h.of("signal", "insert")
    payloads = {e.row["payload"] for e in sent}
    for e in sent:
        check.looked_at += 1
        row, times = e.row, taken[e.row["id"]]
        if len(times) > 1:
            check.found.append(f"{row} was taken {len(times)} times")
        elif times:
            records = [s for s in by_xid[times[0].xid] if s.row["job"] == row["job"]
                       and s.row["result"] == {"payload": row["payload"]}]  # fmt: skip
            pruned = not records and h.over(row["job"], times[0].at)
            if len(records) != 1 and not pruned:
                check.found.append(f"{row} was taken, and recorded {len(records)} times")
        elif row["id"] not in h.inbox:
            check.found.append(f"{row} is lost")
    check.found += [
        f"{line['signal']} was sent, and is lost"
        for line in h.ledger
        if line["what"] == "sent" and line["signal"] not in payloads
    ]
    uses = Counter(
        value for (_, _), steps in h.steps.items() for value in
        {e.row["result"]["payload"] for e in steps if e.row["kind"] == "event" and e.row["result"]}
    )  # fmt: skip
    check.found += [f"{value} is in {n} steps" for value, n in uses.items() if n > 1]
    return check


def children(h: History) -> list[Check]:
    """A step makes its jobs once, and records their results in their order."""
    once = Check("children of each step", 0, least=50)
    results = Check("results of children", 0, least=20)
    known = {}
    places: Counter[tuple[str, str]] = Counter()
    wanted: Counter[tuple[str, str]] = Counter()
    for (job, name), entries in h.steps.items():
        for e in entries:
            if e.row["kind"] not in ("gather", "spawn"):
                continue
            if e.op == "insert":
                once.looked_at += 1
                known[e.row["result"]] = e
                wanted[job, name] += 1
                members = h.members[e.row["result"]]
                firsts = [made[0] for made in members.values()]
                there = sorted(first.row["payload"]["place"] for first in firsts)
                if there != list(range(len(there))) or {f.xid for f in firsts} != {e.xid}:
                    once.found.append(f"{name} of {job} made {there}, not all with its record")
            elif e.op == "update" and not e.row["open"] and e.row["kind"] == "gather":
                results.looked_at += 1
                batch = next(
                    x.row["result"] for x in reversed(entries) if x.op == "insert" and x.n < e.n
                )
                results.found += _results(h, e, batch)
    for batch, parent, total, _ in h.batches:
        if parent and batch not in known:
            once.found.append(f"{parent} has a batch of {total} that no step knows")
    for e in h.of("made"):
        payload = e.row["payload"]
        if (
            "of" in payload
            and payload["place"] == 0
            and e.n == h.members[e.row["batch"]][e.row["id"]][0].n
        ):
            places[payload["of"], payload["label"]] += 1
    for key in places.keys() | wanted.keys():
        if places[key] != wanted[key]:
            once.found.append(f"{key}: made {places[key]} times, {wanted[key]} times recorded")
    return [once, results]


def _results(h: History, step: Entry, batch: str) -> Iterable[str]:
    members = h.members[batch]
    ids = sorted(members, key=lambda each: members[each][0].row["payload"]["place"])
    if [row[0] for row in step.row["result"]] != ids:
        found = len(step.row["result"])
        yield f"{step.row['job']} {step.row['name']}: {found} results of {len(ids)}"
        return
    for job, state, result, _ in step.row["result"]:
        ended = [
            (e.row["state"], e.row["result"])
            for e in h.finished.get(job, ())
            if e.done <= step.done
        ]
        if (state, result) not in ended[-2:]:  # one that runs again may end beside this
            yield f"{step.row['job']}: {job} was {ended}, recorded: {state} {result}"


def batches(h: History) -> Check:
    """Each is whole, ends once after its jobs, and calls once."""
    check = Check("batches and their calls", 0, least=20)
    ends: dict[str, list[Entry]] = defaultdict(list)
    for e in h.of("ended"):
        ends[e.row["id"]].append(e)
    calls: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for e in h.of("made"):
        if e.row["task_name"] in ("done", "success", "failure"):
            calls[e.row["payload"]["batch"]["id"], e.row["task_name"]].setdefault(
                e.row["id"], e.xid
            )
    for batch, parent, total, ended in h.batches:
        check.looked_at += 1
        members = h.members[batch]
        if len(members) != total:
            check.found.append(f"{batch} has {len(members)} of {total} jobs")
        if len(ends[batch]) != ended and not (parent and ends[batch]):
            check.found.append(f"{batch} ended {len(ends[batch])} times")
        if not ended or not ends[batch]:
            continue
        for end in ends[batch]:  # that of ctx.gather opens again if a job runs again
            check.found += _early(h, batch, end)
        may_succeed, may_fail = True, False
        for job in members:
            states = [
                e.row["state"] for e in h.finished.get(job, ()) if end.began <= e.done <= end.at
            ]
            if last := h.ended_before(job, end.began):
                states.append(last.row["state"])
            may_succeed = may_succeed and "completed" in states
            may_fail = may_fail or bool(set(states) & set(BAD))
        got = {what: len(calls[batch, what]) for what in ("done", "success", "failure")}
        wanted = [] if parent else [{"done": 1, "success": 1, "failure": 0}] * may_succeed
        wanted += [] if parent else [{"done": 1, "success": 0, "failure": 1}] * may_fail
        if got not in (wanted or [{"done": 0, "success": 0, "failure": 0}]):
            check.found.append(f"{batch} of {total}: calls {got}, allowed: {wanted}")
        xids = {xid for what in got for xid in calls[batch, what].values()}
        if not xids <= {end.xid}:
            check.found.append(f"{batch} called outside of its end's transaction")
    check.found += [f"callback_failed: {row[0]}" for row in h.refused]
    return check


def _early(h: History, batch: str, end: Entry) -> Iterable[str]:
    """The jobs that had not ended: made before its transaction, and not over at its commit."""
    for job, made in h.members[batch].items():
        for m in made:
            if m.done < end.began and not any(
                m.done <= e.done <= end.done for e in h.finished.get(job, ())
            ):
                yield f"{batch} ended at {end.at:.4f}, before its job {job}"


def chains(h: History) -> Check:
    """Each completion of a link makes the next one, in its transaction."""
    check = Check("links of chains", 0, least=20)
    starts: dict[str, float] = {}
    for line in h.ledger:
        if line["what"] == "start":
            starts.setdefault(line["job"], line["at"])
    made: dict[tuple[str, int], dict[str, Entry]] = defaultdict(dict)
    completed: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for e in h.of("made"):
        if e.row["task_name"] == "link":
            made[e.row["payload"]["chain"], e.row["payload"]["place"]].setdefault(e.row["id"], e)
    for e in h.of("done"):
        if e.row["task_name"] == "link" and e.row["state"] == "completed":
            check.looked_at += 1
            completed[e.row["payload"]["chain"], e.row["payload"]["place"] + 1].append(e)
            if e.row["id"] not in starts:
                check.found.append(f"{e.row['id']} completed, and never ran")
    for key in made.keys() | completed.keys():
        before, after = completed[key], made[key].values()
        if key[1] in (1, 2) and sorted(e.xid for e in before) != sorted(e.xid for e in after):
            check.found.append(f"{key}: {len(before)} completions made {len(after)}")
        elif key[1] == 0 and len(after) != 1:
            check.found.append(f"{key}: made {len(after)} times")
        for e in after:
            if key[1] and starts.get(e.row["id"], e.done) < min(b.at for b in before) - 0.01:
                check.found.append(f"{key} started before the one that it follows ended")
    return check


def cancelled(h: History) -> Check:
    """A job that was cancelled makes no jobs, unless it was run again."""
    check = Check("cancelled parents", 0, least=3)
    parents = {batch: parent for batch, parent, *_ in h.batches if parent}
    stops: dict[str, list[float]] = defaultdict(list)
    for e in h.of("flag"):
        stops[e.row["id"]].append(e.done)
    for e in h.of("done"):
        if e.row["state"] == "cancelled":
            stops[e.row["id"]].append(e.done)
    check.looked_at = len({parent for parent in parents.values() if parent in stops})
    for batch, parent in parents.items():
        for made in h.members[batch].values():
            at = made[0].done
            if any(stop < at - EPSILON and not any(stop <= t <= at for t in h.made[parent])
                   for stop in stops[parent]):  # fmt: skip
                check.found.append(
                    f"{parent} made {made[0].row['id']} at {at:.4f}, cancelled at "
                    f"{stops[parent]}, made at {h.made[parent]}"
                )
    return check


def ends(h: History, left: int) -> Check:
    check = Check(ENDED, len(h.of("done")), least=100)
    if left:
        check.found.append(f"{left} jobs and batches have not ended")
    check.found += [f"{job} is lost" for job in h.made.keys() - h.left if not h.finished.get(job)]
    return check


def errors(h: History) -> Check:
    """A run fails for no other reason than the faults and the handlers' own."""
    check = Check("errors of runs", sum(times for _, times in h.errors), least=20)
    check.found = [f"{times} times: {e}" for e, times in h.errors if not re.match(EXPECTED, e)]
    return check


def places(h: History) -> Check:
    check = Check("no job with a limit outside its lane", len(h.events), least=100)
    check.found = [f"{e.kind}: {e.job}" for e in h.events if e.kind in ("loose", "stolen")]
    return check


def judge(h: History, left: int) -> list[Check]:
    beside = concurrency(h)
    beside.least = 30
    return [
        claims(h), settled(h), seen(h), effects(h), signals(h), *children(h), batches(h), chains(h),
        cancelled(h), ends(h, left), errors(h), places(h), beside,
    ]  # fmt: skip
