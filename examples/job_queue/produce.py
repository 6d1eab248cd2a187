"""Enqueue jobs. With --wait, wait until all have finished.

python produce.py --emails 200 --reports 6 --payments 20 --failing 4 --wait
"""

import argparse
import asyncio
from collections import Counter
from contextlib import suppress

from tasks import app, generate_report, process_payment, send_email

from leasework import Job
from leasework.errors import JobFailed


async def produce(emails: int, reports: int, payments: int, failing: int) -> list[Job]:
    return await app.enqueue_many(
        [send_email.job(to=f"user{n}@example.org", subject="Hello") for n in range(emails)]
        + [generate_report.job(month=f"2026-{n + 1:02}") for n in range(reports)]
        + [
            process_payment.job(order=n, amount_won=10_000 + n, gateway_down=n < failing)
            for n in range(payments)
        ]
    )


async def wait_for(jobs: list[Job]) -> None:
    """Wait until all jobs have finished, and print how many ended in which state."""
    ends: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        with suppress(JobFailed):  # it is counted like the others
            await job.wait(timeout=300)
        record = await job.get()
        ends[record.task_name, record.state] += 1
    for (task, state), count in sorted(ends.items()):
        print(f"{count:4} {task} {state}")


async def main() -> None:
    parser = argparse.ArgumentParser(description="Enqueue jobs.")
    parser.add_argument("--emails", type=int, default=200)
    parser.add_argument("--reports", type=int, default=6)
    parser.add_argument("--payments", type=int, default=20)
    parser.add_argument("--failing", type=int, default=4, help="of the payments")
    parser.add_argument("--wait", action="store_true")
    options = parser.parse_args()
    jobs = await produce(options.emails, options.reports, options.payments, options.failing)
    print(f"enqueued {len(jobs)} jobs", flush=True)
    if options.wait:
        await wait_for(jobs)
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
