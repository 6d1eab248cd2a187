"""Each figure of the dashboard and of ``leasework status`` says exactly what it counts."""

from __future__ import annotations

import re
from html import unescape

import psycopg

from tests.support.wait import until
from tests.web.conftest import Make, Open, Scene

DISCARDED = """
insert into leasework.history (at, queue, task_name, completed, discarded, failed)
select date_trunc('minute', now()) - interval '1 min' * n, 'mail', 'send', 0, 60, 60
from generate_series(1, 10) n
"""


def figures(html: str) -> dict[str, tuple[str, str]]:
    """Heading: (the figure, what stands below it)."""
    found = re.findall(
        r"<dt>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>\s*<dd class=\"sub\">(.*?)</dd>", html, re.DOTALL
    )
    words = [[unescape(re.sub(r"<[^>]+>", "", part)).strip() for part in parts] for parts in found]
    return {heading: (figure, below) for heading, figure, below in words}


async def test_finished_a_minute_and_in_the_hour_count_the_same(make: Make):
    async with make() as inside:
        with psycopg.connect(inside.app.settings.dsn, autocommit=True) as connection:
            connection.execute(DISCARDED)
        shown = figures((await inside.http.get("/now")).text)
    assert shown["Finished per minute"][0] == "60"
    assert shown["Finished per minute"][1] == "average of the last 5 minutes"
    assert shown["Finished jobs"] == ("600", "last hour, 0 of them completed")
    assert shown["Failed attempts"] == ("600", "last hour, including retried ones")


async def test_the_first_page_that_a_process_serves_counts_the_problems(make: Make):
    """One of several processes behind a web server serves it, and no other page before."""
    async with make() as inside:
        html = (await inside.http.get("/jobs")).text
    assert re.search(r'id="troubles">[1-9]', html), "no node is alive"


def test_available_jobs_leave_out_those_that_run(scene: Scene, page_at: Open):
    running = [scene.enqueue("long", "work", payload={"pages": 2}) for _ in range(2)]
    for job in running:
        scene.wait_state(job, "running")
    waiting = [scene.enqueue("send", "unworked", payload={"user_id": n}) for n in range(3)]
    page = page_at(scene.url + "now")
    page.wait_for_selector("a.row:text-is('unworked')")

    def row(queue: str) -> dict[str, str]:
        cells = page.locator("tr", has=page.locator(f"a.row:text-is('{queue}')")).locator("td.n")
        return dict(
            zip(
                cells.evaluate_all("all => all.map(cell => cell.dataset.label)"),
                cells.all_inner_texts(),
                strict=True,
            )
        )

    assert (row("work")["Available"], row("work")["Running"]) == ("0", "2")
    assert (row("unworked")["Available"], row("unworked")["Running"]) == ("3", "0")

    def counted() -> bool:
        page.reload()
        shown = figures(page.content())
        assert "queue unworked" in shown["Available jobs"][1]
        return (shown["Available jobs"][0], shown["Running jobs"][0]) == ("3", "2")

    until(counted, 60, "a page without a tick of any schedule")
    page.click(".figures a:text-is('oldest')")
    page.wait_for_url(f"**/jobs/{waiting[0]}")
    for queue in ("work", "unworked"):
        where = ("--where", f"queue:{queue}", "--yes", "--dsn", scene.dsn)
        assert scene.procs.start("-m", "leasework", "jobs", "cancel", *where).wait(60) == 0
    until(lambda: not scene.sql("select 1 from leasework.job where queue = 'work'"), 60)


def test_moments_of_a_job_have_their_date_and_zone(scene: Scene, page_at: Open):
    job = scene.enqueue("send", "mail", payload={"user_id": 1})
    scene.wait_state(job, "completed")
    page = page_at(f"{scene.url}jobs/{job}")
    times = page.locator(".timeline time").all_inner_texts()
    assert times
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", time) for time in times)


def test_terms_show_their_end_and_reason(scene: Scene, page_at: Open):
    page = page_at(scene.url + "leaders")
    page.wait_for_selector("td[data-label='Ended']:text-is('held')")
    term, worker = scene.sql("select term, holder from leasework.leaders")[0]
    scene.sql(
        "insert into leasework.term select name, token - 1, node, worker_id, "
        "acquired_at - interval '2 min' from leasework.term where token = %s",
        term,
    )
    scene.sql(
        "insert into leasework.event (kind, level, worker_id, fields) values ('lease_lost', "
        "'warning', %s, jsonb_build_object('name', 'default', 'term', %s::bigint, 'seconds', 90, "
        "'why', 'not renewed in time'))",
        worker,
        term - 1,
    )
    page.goto(scene.url + "leaders")
    page.wait_for_selector("td[data-label='Ended']:text-is('lost: not renewed in time')")
    row = page.locator("tr", has_text="not renewed in time")
    assert row.locator("[data-label='Duration']").inner_text().endswith("2 min")
    assert "UTC" in row.locator("[data-label='To']").inner_text()
    scene.sql("delete from leasework.term where token = %s", term - 1)
