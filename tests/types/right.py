"""Right calls, for type checkers: they find nothing wrong here. Nothing of this file is run."""

from datetime import UTC, datetime, timedelta

from leasework import (
    App,
    Cancel,
    Context,
    Deadline,
    Discard,
    Job,
    JobRequest,
    Leader,
    Lock,
    Polling,
    Retention,
    Snooze,
    State,
    StoredSchedule,
    SyncContext,
    SyncJob,
)
from leasework.testing import context, sync_context

app = App()


@app.task
async def send(user_id: int, subject: str = "") -> str:
    return f"{user_id} {subject}"


@app.task(queue="mail", max_attempts=3, deadline=Deadline(hours=1, on_breach="send"))
async def welcome(ctx: Context, user_id: int, timeout: float = 3.0) -> dict[str, int]:
    return {"user_id": user_id, "attempt": ctx.attempt}


@app.task
def resize(path: str) -> int:
    return len(path)


@app.task(executor="thread")
def crop(ctx: SyncContext, path: str, *, width: int) -> None: ...


@app.task
async def poll(ctx: Context, url: str) -> str | Snooze:
    return url if ctx.attempt > 1 else Snooze(5)


@app.task(executor="thread")
def fetch(url: str) -> int | Cancel | Discard | None:
    return len(url)


@app.periodic("0 7 * * *")
@app.task
async def report() -> None: ...


@app.every(seconds=3)
async def beat(ctx: Context) -> None: ...


async def main(session: object) -> tuple[str, dict[str, int], int]:
    job: Job[str] = await send.enqueue(1)
    await send.enqueue(user_id=1, subject="x")
    later = welcome.using(unique="u", run_in=60, on_conflict="replace", on=session)
    mail: Job[dict[str, int]] = await later.enqueue(1, timeout=9)
    await later.using(run_at=datetime.now(UTC) + timedelta(days=1), run_in=None).enqueue(2)
    size: Job[int] = await resize.enqueue("a")
    text: Job[str] = await poll.enqueue("u")
    count: Job[int | None] = await fetch.enqueue("u")
    print((await text.wait()).upper(), await count.wait())
    await crop.enqueue("p", width=3)
    await report.enqueue()
    await beat.enqueue()
    request: JobRequest[str] = send.using(priority=1).job(1)
    sent: Job[str] = await app.enqueue(request, on=session)
    many: list[Job[str]] = await app.enqueue_many(send.job(n) for n in range(3))
    print((await sent.wait()).upper(), (await many[0].wait()).upper())
    for mixed in await app.enqueue_many([send.job(1), resize.job("a")]):
        await mixed.cancel()
    plain: SyncJob[str] = app.sync.enqueue(send.job(1))
    plains: list[SyncJob[int]] = app.sync.enqueue_many([resize.job("a")])
    print(plain.wait(timeout=5).upper(), plains[0].wait() + 1)
    app.sync.schedules.list(limit=3)[0].task_name.upper()
    app.sync.deadline("books").met(on=session)
    app.every(seconds=60, missed="skip", queue="mail", arguments={"user_id": 1})
    await app.schedules.put("a", send, every=timedelta(hours=1), grace_seconds=1, on=session)
    lock: Lock = app.lock("nightly", timeout=timedelta(seconds=5), cancel=False)
    lead: Leader = app.leader("engine")
    stored: StoredSchedule = await app.schedules.get("a")
    print(lock.held, lead.term, stored.next_at)
    App("embedded", name="shop", release=None, recover_within=30, grace=timedelta(seconds=5))
    app.configure(dsn="embedded", listen=False)
    await app.jobs(state="discarded", queue="mail", task="send", tag="eu", limit=3)
    await app.jobs(state=State.RUNNING)
    print(await send(1, subject="x"), resize("a"), await welcome(context(), 1, timeout=2.0))
    crop(sync_context(timeout=timedelta(seconds=3)), "p", width=3)
    app.queue("mail", claim="advisory")
    await app.diagnose(role="observer")
    for due in (3, timedelta(hours=1), datetime.now(UTC)):
        await app.deadline("books", due=due, on_breach=report, on=session)
    send.using(on_failure=report, deadline=Deadline(hours=1, on_breach="report", since="started"))
    App(polling=Polling(stage=timedelta(seconds=1)), retention=Retention(catch_up_seconds=60))
    app.leader("engine", on_gain=lambda lead: print(lead.term), also_advisory_key=7)
    app.sync.leader("engine", also_advisory_key=7)
    app.sync.advisory_lock("import", scope="session", timeout=5)
    app.sync.schedules.put("a", send, every=60, arguments={"user_id": 1})
    return await job.wait(), await mail.wait(timeout=5), await size.wait()
