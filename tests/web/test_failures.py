"""The page of failures, the same by the command, and jobs that are followed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from leasework.cli.root import root
from leasework.model.fingerprint import fingerprint
from leasework.model.moments import sparkline
from tests.pg.conftest import bench, sql
from tests.support.procs import Processes
from tests.web.conftest import Inside, Make

__all__ = ["bench", "sql"]

ERROR = "ConnectionError: host <b>{}</b> refused"
FAILED = (
    "with job as (insert into leasework.job_done (id, queue, task_name, priority, run_at,"
    " created_at, max_attempts, attempt, crashes, state, payload, last_error) values"
    " (gen_random_uuid(), 'default', 't', 0, now(), now(), 1, 1, 0, 'discarded', '{}', %(error)s)"
    " returning id, finished_at)"
    " insert into leasework.attempt (job_id, claim_token, attempt, ended_at, outcome, error,"
    " fingerprint) select id, 1, 1, finished_at, 'discarded', %(error)s, %(print)s from job"
    " returning job_id::text"
)


async def failed(sql: Any, host: str = "db-7", error: str = ERROR) -> str:
    said = error.format(host)
    [[job]] = await sql(FAILED, {"error": said, "print": fingerprint(said)})
    return str(job)


async def text(inside: Inside, path: str) -> str:
    page = await inside.http.get(path)
    assert page.status_code == 200, page.text
    return page.text


async def test_the_page_leads_to_the_jobs_of_a_group(make: Make, sql: Any) -> None:
    async with make() as inside:
        assert "No attempt failed in the last 24h" in await text(inside, "/failures")
        jobs = [await failed(sql, host) for host in ("db-7", "db-8")]
        await failed(sql, error="ValueError: no")
        page = await text(inside, "/failures?span=1h")
        assert "ConnectionError: host &lt;b&gt;…&lt;/b&gt; refused" in page
        assert (
            'title="0, 0,' in page
            and "···········█" in page
            and 'data-label="Still failed">2<' in page
        )
        links = [unescape(link) for link in re.findall(r'href="(/jobs[^"]+)"', page)]
        name = fingerprint(ERROR.format("db-7"))
        [listed] = [link for link in links if link.startswith("/jobs?") and name in link]
        assert listed.endswith("since%3A1h")
        shown = await text(inside, listed)
        assert all(f"/jobs/{job}" in shown for job in jobs) and "ValueError" not in shown
        [retry] = [link for link in links if "act=retry" in link and name in link]
        assert ">2 jobs match<" in await text(inside, retry)
        form = {"act": "retry", "q": f"state:discarded error:{name} since:1h"}
        assert (await inside.post("/jobs/bulk", retry, **form)).status_code == 303
        assert await sql("select count(*) from leasework.job") == [(2,)]


async def test_a_dashboard_that_only_reads_offers_no_acts(make: Make, sql: Any) -> None:
    await failed(sql)
    async with make(unprotected=True, read_only=True) as inside:
        assert "jobs/bulk" not in await text(inside, "/failures")


async def test_a_search_says_when_it_has_reached_the_end(
    make: Make, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasework.tuning.Tuning.page_rows", 2)
    for _ in range(7):  # four steps, of which the second page takes three
        await failed(sql)
    async with make() as inside:
        page = await text(inside, "/jobs?q=args.who:kim")
        assert "No matching jobs among the first 2 searched" in page
        [further] = re.findall(r'href="(/jobs\?[^"]+)">Search further', page)
        assert "the search has reached the end" in await text(inside, unescape(further))


def test_a_trend_has_a_mark_for_every_part_that_is_not_empty() -> None:
    assert sparkline([0, 1, 50, 100]) == "·▁▄█"
    assert sparkline([0, 0]) == "··"


@pytest.fixture
def run(dsn: str, migrated: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("LEASEWORK_DSN", dsn)
    return lambda *arguments: CliRunner().invoke(root, list(arguments))


async def test_the_command_shows_the_same_groups(sql: Any, run: Callable[..., Result]) -> None:
    async def said(*arguments: str) -> str:
        done = await asyncio.to_thread(run, *arguments)
        assert done.exit_code == 0, done.output
        return done.output

    assert await said("failures") == "No failures.\n"
    old = await failed(sql, "db-1\x1b[31m")
    job = await failed(sql, "db-2\x1b[32m")
    await sql(
        "update leasework.attempt set ended_at = now() - interval '2 h' where job_id = %s", [old]
    )
    assert "\x1b" not in await said("failures")
    [group] = json.loads(await said("failures", "--json"))
    assert (group["attempts"], group["open"], group["newest_job"]) == (2, 1, job)
    [group] = json.loads(await said("failures", "--json", "--since", "1h"))
    assert group["pattern"].startswith("ConnectionError: host <b>…") and group["attempts"] == 1
    where = f"error:{group['fingerprint']} since:1h"
    assert [row["id"] for row in json.loads(await said("jobs", "--json", "--where", where))] == [
        job
    ]


async def test_jobs_are_sorted(sql: Any, run: Callable[..., Result]) -> None:
    jobs = [await failed(sql, str(n)) for n in range(3)]
    shift = (
        "update leasework.job_done set created_at = now() - %s * interval '1 min', run_at = now()"
        " - %s * interval '1 min', started_at = finished_at - %s * interval '1 s' where id = %s"
    )
    for n, job in enumerate(jobs):
        await sql(shift, (n, n, (n + 1) % 3, job))

    async def order(*arguments: str) -> list[int]:
        done = await asyncio.to_thread(run, "jobs", "--json", "--sort", *arguments)
        assert done.exit_code == 0, done.output
        return [jobs.index(row["id"]) for row in json.loads(done.output)]

    assert await order("created") == [0, 1, 2]
    assert await order("run_at") == [2, 1, 0]
    assert await order("finished") == [2, 1, 0]
    assert await order("duration", "--limit", "2") == [1, 0]


async def test_jobs_are_followed(dsn: str, migrated: str, sql: Any, tmp_path: Path) -> None:
    first = await failed(sql)
    with Processes(tmp_path) as procs:
        env = {"LEASEWORK_DSN": dsn}
        arguments = ("jobs", "--where", "state:discarded", "--follow", "--json")
        process = procs.start("-m", "leasework", *arguments, env=env)
        await asyncio.to_thread(process.wait_for, first, 60)
        second = await failed(sql)
        await asyncio.to_thread(process.wait_for, second, 60)
        process.kill(signal.SIGINT)
        assert process.wait(60) == 0
    shown = [json.loads(line)["id"] for line in process.output.splitlines() if line[:1] == "{"]
    assert shown == [first, second]
