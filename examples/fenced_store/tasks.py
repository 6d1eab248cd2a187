"""A job that writes to an external store. Its first worker comes back too late."""

import json
import os
import time
import urllib.error
import urllib.request

from leasework import App, SyncContext

app = App(name="fenced-store")
STORE = os.environ.get("STORE_URL", "http://127.0.0.1:8098")


def call(method: str, path: str, document: dict | None = None) -> tuple[int, dict]:
    body = json.dumps(document).encode() if document else None
    request = urllib.request.Request(STORE + path, body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@app.task(queue="reports", requeue_after=1.0)
def publish(ctx: SyncContext, name: str) -> dict:
    """Runs in a thread, which cannot be stopped. After a second the job is taken away and runs
    again elsewhere with a higher token. The first attempt wakes up after the second has written,
    and writes as well."""
    if ctx.attempt == 1:
        hang_until_somebody_else_has_written(name, ctx.token)
    document = {"token": ctx.token, "value": f"as attempt {ctx.attempt} made it"}
    answers = {kind: call("PUT", f"/{kind}/{name}", document)[0] for kind in ("trusting", "fenced")}
    if answers["fenced"] == 409:
        ctx.log.warning("the store knows a newer writer: stop here")
    return answers


def hang_until_somebody_else_has_written(name: str, token: int) -> None:
    """Stands for a pause of any length: garbage collection, a slow disk, a frozen container."""
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at:
        status, kept = call("GET", f"/fenced/{name}")
        if status == 200 and kept["token"] > token:
            return
        time.sleep(0.05)
