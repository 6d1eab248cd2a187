"""The code "before" on the pages for users of other systems does what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.steps import File, steps_of

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
PROCRASTINATE = """
import asyncio, before

async def main():
    async with before.app.open_async():
        await before.app.schema_manager.apply_schema_async()
        await before.sign_up("kim@example.org")
        await before.app.run_worker_async(wait=False, listen_notify=False)
        [job] = await before.app.job_manager.list_jobs_async(task=before.send_mail.name)
        print(job.status, job.queueing_lock)

asyncio.run(main())
"""
RQ = """
import before
from rq import SimpleWorker

[job] = before.queue.get_jobs()
SimpleWorker([before.queue], connection=before.queue.connection).work(burst=True)
print(job.return_value(refresh=True), job.timeout)
"""
CELERY = """
import before

before.app.conf.task_always_eager = True
print(before.send_mail.delay("kim@example.org", subject="Hello").get())
"""
APSCHEDULER = """
import asyncio

async def main():
    import before

    print([job.id for job in before.scheduler.get_jobs()])
    while True:
        await asyncio.sleep(1)

asyncio.run(main())
"""


def blocks(page: str) -> list[str]:
    """The code below the headings "Before", without that of files."""
    text = (HOWTO / page).read_text("utf-8")
    return re.findall(r"^#+ Before\n\n(?:[^`#]+\n\n)?```python\n(.*?)^```", text, re.M | re.S)


def start(folder: Path, before: str, code: str) -> subprocess.Popen[str]:
    (folder / "before.py").write_text(before, "utf-8")
    command = [sys.executable, "-u", "-c", code]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def test_procrastinate_runs_the_job_that_the_page_defers(direct_dsn: str, tmp_path: Path):
    before, _ = blocks("from-procrastinate-or-rq.md")
    before = before.replace("postgresql://localhost/shop", direct_dsn)
    said, _ = start(tmp_path, before, PROCRASTINATE).communicate()
    assert said.split() == ["succeeded", "mail-kim@example.org"]


def test_rq_runs_the_job_that_the_page_enqueues(tmp_path: Path):
    """On an imitation of Redis, since the point is RQ."""
    _, before = blocks("from-procrastinate-or-rq.md")
    before = before.replace("from redis import Redis", "from fakeredis import FakeRedis as Redis")
    said, _ = start(tmp_path, before, RQ).communicate()
    assert said.split("\n")[-2] == "sent to kim@example.org 60"


def test_apscheduler_runs_the_jobs_that_the_page_adds(tmp_path: Path):
    [before] = blocks("from-apscheduler.md")
    process = start(tmp_path, before, APSCHEDULER)
    try:
        assert process.stdout is not None
        assert sorted(process.stdout.readline()) == sorted("['refresh', 'daily-report']\n")
        assert process.stdout.readline() == "refreshed\n"
    finally:
        process.kill()
        process.communicate()


def test_celery_runs_the_task_of_the_page(tmp_path: Path):
    """Without a broker: in the process that sends it."""
    before = next(steps_of(HOWTO / "from-celery.md"))
    assert isinstance(before, File)
    said, _ = start(tmp_path, before.text, CELERY).communicate()
    assert said == "sent to kim@example.org\n"
