"""Judges a rehearsal by the ledger of its processes, and by what the database recorded."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

from tests.limits_fire.judge import Check
from tests.upgrade.fleet import Fleet

OF_SCHEMA = re.compile(
    r"SchemaToo|SchemaMissing|Undefined(Column|Table|Function|Object)|cached plan"
    r"|FeatureNotSupported|does not exist|DatatypeMismatch|Traceback"
)
"""What a process says when the schema does not fit, or when nobody foresaw an error."""
ON_PURPOSE = "on purpose"
DONE = "select id::text, state, crashes, attempt, last_error from leasework.job_done"
TICKS = """
select tick_at, count(*) from leasework.job_done where schedule is not null group by 1 order by 1
"""
Lines = list[dict[str, Any]]


def judge(fleet: Fleet, left: int, least: int) -> list[Check]:
    lines = fleet.lines()
    done = fleet.sql(DONE)
    ticks = fleet.sql(TICKS)
    releases = fleet.sql("select name from leasework.release order by number")
    sent = {line["job"] for line in lines if line["what"] == "sent"}
    refused = [
        line["error"]
        for line in lines
        if line["what"] == "not enqueued" and "producer" not in line["name"]
    ]
    effects: dict[str, Lines] = defaultdict(list)
    for line in lines:
        if line["what"] == "effect":
            effects[line["job"]].append(line)
    return [
        Check("each job that was enqueued had its effect", len(sent),
              [f"{job} has none" for job in sent - effects.keys()], least),
        Check("each is recorded once, as completed, and none is left", len(done),
              [*recorded(sent, done), *([f"{left} jobs are left"] if left else [])], least),
        Check("an effect came twice only after a kill", sum(map(len, effects.values())),
              doubled(effects, fleet.killed), least),
        Check("each begin is explained by the record of attempts", len(done),
              unexplained(lines, done, fleet.killed), least),
        Check("no enqueue was refused", len(sent), refused, least),
        Check("each version ran jobs that the other enqueued", crossed(lines, effects)),
        Check(
            "each second had one job of the schedule",
            len(ticks),
            seconds_wrong(ticks),
            least // 4,
        ),
        Check(
            "the upgrade is no new release of the application",
            len(releases),
            [f"{name} is a release" for (name,) in releases[1:]],
        ),
        Check("no process ended by itself, and each that was stopped ended with 0",
              len(fleet.logs), fleet.ended),
        Check("no process met an error of the schema", len(fleet.logs), errors_told(fleet)),
        Check("commands, refusals and status are as the page says", fleet.asked, fleet.wrong),
        Check("workers were killed", len(fleet.killed), [], 2),
    ]  # fmt: skip


def recorded(sent: set[str], done: list[Any]) -> list[str]:
    times = Counter(row[0] for row in done)
    found = [f"{job} is recorded {times[job]} times" for job in sent if times[job] != 1]
    return found + [f"{row[0]} is {row[1]}: {row[4]}" for row in done if row[1] != "completed"]


def crossed(lines: Lines, effects: dict[str, Lines]) -> int:
    """How many jobs the new version enqueued and the old one ran, or the reverse: the smaller
    number."""
    by = {line["job"]: line["version"] for line in lines if line["what"] == "sent"}
    ways = Counter(
        line["name"].split("-")[0]
        for job, found in effects.items()
        for line in found[-1:]
        if by.get(job, line["version"]) != line["version"]
    )
    return min(ways["old"], ways["new"])


def seconds_wrong(ticks: list[Any]) -> list[str]:
    """Moments with more than one job, and gaps."""
    found = [f"{moment} has {jobs} jobs" for moment, jobs in ticks if jobs != 1]
    for (before, _), (after, _) in pairwise(ticks):
        if after - before != timedelta(seconds=1):
            found.append(f"no job between {before} and {after}")
    return found


def doubled(effects: dict[str, Lines], killed: set[str]) -> list[str]:
    """All effects of a job but the last are of processes that were killed before they could record
    them."""
    return [
        f"{job} had {len(found)} effects, of {[line['name'] for line in found]}"
        for job, found in effects.items()
        if any(line["name"] not in killed for line in found[:-1])
    ]


def unexplained(lines: Lines, done: list[Any], killed: set[str]) -> list[str]:
    """A job begins once, and again for each crash and each error on purpose. What began had its end
    noted, or its process was killed."""
    began, ended, raised = Counter[str](), Counter[tuple[str, str]](), Counter[str]()
    found = []
    for line in lines:
        if line["what"] == "began":
            began[line["job"]] += 1
            ended[line["job"], line["name"]] -= 1
        elif line["what"] in ("effect", "raised"):
            ended[line["job"], line["name"]] += 1
            raised[line["job"]] += line["what"] == "raised"
    for job, _, crashes, attempt, _ in done:
        if began[job] > 1 + crashes + raised[job]:
            found.append(
                f"{job} began {began[job]} times, with {crashes} crashes, {attempt} attempts"
            )
    for (job, name), balance in ended.items():
        if balance and name not in killed:
            found.append(f"{job} began in {name} and did not end, and nobody killed it")
    return found


def errors_told(fleet: Fleet) -> list[str]:
    """Lines of logs with errors that a schema explains, or at the level of errors. Workers of the
    new version must refuse the old schema: what they say is judged elsewhere."""
    found = []
    for process in fleet.logs:
        if any(said.startswith(f"{process.name} ended") for said in fleet.refused):
            continue
        for line in process.output.splitlines():
            if ON_PURPOSE not in line and (OF_SCHEMA.search(line) or level(line) == "error"):
                found.append(f"{process.name}: {line[:300]}")
    return found


def level(line: str) -> str:
    try:
        said = json.loads(line)
    except ValueError:
        return ""
    return str(said.get("level", "")).lower() if isinstance(said, dict) else ""


def by_phase(fleet: Fleet) -> list[tuple[str, float, int, int, int, int]]:
    """Of each phase: seconds, jobs enqueued, effects by the old and by the new version, kills."""
    lines, rows = fleet.lines(), []
    for phase in fleet.phases:
        within = [line for line in lines if phase.began <= line["at"] < phase.ended]
        sent = sum(line["what"] == "sent" for line in within)
        by = Counter(line["name"].split("-")[0] for line in within if line["what"] == "effect")
        seconds = phase.ended - phase.began
        rows.append((phase.name, seconds, sent, by["old"], by["new"], phase.kills))
    return rows
