"""Wrong calls, for type checkers: they find each of them. Nothing of this file is run."""

from leasehold import App, Context, Job, SyncContext

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
    await app.jobs(stat="failed")  # wrong: the name of a filter
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
