"""A shop: each order sends a receipt, and a report is due every minute. Four gunicorn workers serve
the pages and run the jobs."""

import os

from flask import Flask, request, session

from leasework import App, SyncContext
from leasework.integrations.flask import Leasework

app = App(os.environ.get("LEASEWORK_DSN", "embedded"), name="shop")


@app.every(seconds=float(os.environ.get("REPORT_EVERY_SECONDS", "60")))
@app.task(queue="reports", timeout=600)
def report(ctx: SyncContext) -> None:
    ctx.log.info("the report of %s", ctx.scheduled_for)


@app.task(queue="mail", max_attempts=10)
def send_receipt(ctx: SyncContext, order: int) -> str:
    return f"receipt for order {order} sent by process {os.getpid()}"


web = Flask(__name__)
web.secret_key = os.environ.get("SECRET_KEY", "an example's key: set your own")
leasework = Leasework(web, app)


@web.post("/orders/<int:order>")
def buy(order: int) -> tuple[dict[str, str], int]:
    """Only the first click of a day sends a receipt."""
    once = send_receipt.using(unique=f"receipt-{order}", unique_for=86_400)
    job = app.sync.enqueue(once.job(order))
    return {"job": str(job.id)}, 202


@web.get("/jobs/<job>")
def status(job: str) -> dict[str, object]:
    record = app.sync.get(job)
    return {"state": record.state, "result": record.result}


@web.post("/login")
def login() -> tuple[str, int]:
    """Your own login goes here. This one believes everybody who knows the password."""
    if request.form.get("password") != os.environ.get("OPS_PASSWORD", "example"):
        return "Wrong password.\n", 403
    session["admin"] = request.form["name"]
    return "Logged in: open /leasework/\n", 200


web.register_blueprint(
    leasework.dashboard(who=lambda: session.get("admin")), url_prefix="/leasework"
)
