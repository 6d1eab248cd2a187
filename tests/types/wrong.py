"""Wrong calls, for type checkers: they find each of them. Nothing of this file is run."""

from leasework import App, Context, Deadline, Job, Polling, Retention, SyncContext
from leasework.testing import context

app = App()


@app.task
async def send(user_id: int, subject: str = "") -> str:
    return f"{user_id} {subject}"


@app.task(queue="mail")
async def welcome(ctx: Context, user_id: int, timeout: float = 3.0) -> dict[str, int]:
    return {"user_id": user_id}


@app.task
def crop(ctx: SyncContext, path: str, *, width: int) -> None: ...


async def main() -> int:
    await send.enqueue(1, subjct="x")  # wrong: the name of an argument
    await send.enqueue("1")  # wrong: the type of an argument
    await send.enqueue()  # wrong: an argument is missing
    await send.enqueue(1, "a", 3)  # wrong: one argument too many
    await welcome.enqueue(1, timeout="soon")  # wrong: the type of an argument given by its name
    await crop.enqueue("p")  # wrong: an argument that is given by its name is missing
    await send.using(prioritty=1).enqueue(1)  # wrong: the name of an option
    await send.using(run_in="60").enqueue(1)  # wrong: the type of an option
    await send.using(on_conflict="ignore").enqueue(1)  # wrong: the value of an option
    send.job(1, queue="mail")  # wrong: an option among the arguments
    await app.enqueue(send)  # wrong: a task is no job
    app.every(seconds=60, quue="mail")  # wrong: the name of a schedule's option
    await app.schedules.put("a", send, every=60, missed="none")  # wrong: the value of one
    App(recover_withn=5)  # wrong: the name of a setting
    App(name="shop", grace="10")  # wrong: the type of a setting
    app.configure(lisen=False)  # wrong: the name of a setting
    await app.jobs(stat="running")  # wrong: the name of a filter
    await app.jobs(state="failed")  # wrong: the name of a state
    app.sync.jobs(state="failed")  # wrong: the name of a state
    await send("1")  # wrong: the type of an argument in a direct call
    await send(1, nothing=1)  # wrong: the name of an argument in a direct call
    await welcome(context(), "1")  # wrong: the type of an argument after ctx
    app.queue("mail", claim="row")  # wrong: the value of an option
    app.advisory_lock("import", scope="sesion")  # wrong: the value of an option
    app.sync.advisory_lock("import", scope="sesion")  # wrong: the value of an option
    await app.diagnose(role="admin")  # wrong: the value of an option
    await app.deadline("books", due="soon", on_breach=send)  # wrong: the type of a time
    await app.deadline("books", due=3, on_breach=len)  # wrong: a function is no task
    app.sync.deadline("books", due=3, on_breach=7)  # wrong: a number is no task
    Deadline(hours=1, on_breach=len)  # wrong: a function is no task
    Deadline(hours=1, on_breach=send, until="done")  # wrong: the value of an option
    send.using(on_failure=len)  # wrong: a function is no task
    Polling(listening="10")  # wrong: the type of a setting
    Retention(catch_up_seconds="10")  # wrong: the type of a setting
    context(timeout="3")  # wrong: the type of a time
    app.leader("engine", ongain=print)  # wrong: the name of a leader's option
    app.sync.advisory_lock("import", scop="session")  # wrong: the name of a lock's option
    app.sync.schedules.put("a", send, evry=60)  # wrong: the name of a schedule's option
    app.lock("nightly", timeout="5")  # wrong: the type of a lock's option
    (await app.enqueue(send.job(1))).wait(timeot=3)  # wrong: the name of an argument
    sent, many = await app.enqueue(send.job(1)), await app.enqueue_many([send.job(1)])
    (await sent.wait()).bit_length()  # wrong: the type of the result
    (await many[0].wait()).bit_length()  # wrong: the type of the result
    app.sync.enqueue(send.job(1)).wait().bit_length()  # wrong: the type of the result
    app.sync.enqueue_many([send.job(1)])[0].wait().bit_length()  # wrong: the type of the result
    app.sync.get(3)  # wrong: the type of an id
    job: Job[str] = await send.enqueue(1)
    return await job.wait()  # wrong: the type of the result
