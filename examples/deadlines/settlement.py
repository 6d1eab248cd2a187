"""A settlement with a deadline. If it is late, a job pages somebody and requests a repair.

leasework worker settlement:app --processes 2
"""

import asyncio
import json
import os
import urllib.error
import urllib.request

from leasework import App, Backoff, Context, Deadline

app = App(os.environ.get("LEASEWORK_DSN", "embedded"), name="settlements", recover_within=9)
ONCALL = os.environ.get("ONCALL_URL", "http://127.0.0.1:8098")
PROMISED_SECONDS = float(os.environ.get("PROMISED_SECONDS", "2"))


@app.task(queue="oncall", max_attempts=50, backoff=Backoff(base=0.5, longest=10))
def page_and_repair(ctx: Context, breach: dict) -> None:
    """The callback of a breach. It may run twice, because its process can be killed at any line.

    The deadline's id never changes, so the pager recognises a second page. The token grows with
    each run, so the repair desk refuses a process that was declared dead and is still alive.
    """
    deadline = breach["deadline"]
    post("/pages", {"key": deadline, "text": f"{breach['name']} is late", "by": ctx.worker_id})
    post("/repairs", {"deadline": deadline, "token": ctx.token, "by": ctx.worker_id})


@app.task(deadline=Deadline(seconds=PROMISED_SECONDS, since="started", on_breach=page_and_repair))
async def settle(ctx: Context, batch: int, bank_hangs: bool = False) -> None:
    ctx.log.info("settling batch %d, promised at %s", batch, ctx.deadline and ctx.deadline.due_at)
    await asyncio.sleep(600 if bank_hangs else 0.1)


def post(path: str, body: dict) -> None:
    request = urllib.request.Request(ONCALL + path, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()
