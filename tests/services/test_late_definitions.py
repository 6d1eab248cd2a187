"""What is defined after a node of this process has started is refused, not ignored."""

from __future__ import annotations

import pytest

from leasework import App
from leasework.errors import ConfigError
from leasework.testing import postgres_dsn
from tests.support.wait import until_async


@pytest.fixture
async def app(postgres):
    with postgres_dsn(postgres.dsn) as dsn:
        app = App(dsn, release="1")
        yield app
        await app.close()


async def work() -> None: ...


async def scheduled(app: App) -> bool:
    return [s.name for s in await (await app.inspect()).schedules()] == ["early"]


def too_late(what: str):
    return pytest.raises(ConfigError, match=rf"{what}.* is defined too late.*before app\.node\(\)")


async def test_what_is_defined_while_a_node_runs_is_refused(app: App):
    task = app.task(name="early", version=2)(work)
    async with app.node():
        with too_late("the upcast of 'early'"):
            task.upcast(1)(dict)
        with too_late("the task 'late'"):
            app.task(name="late")(work)
        for schedule in (app.periodic("* * * * *"), app.every(seconds=1)):
            with too_late("a schedule"):
                schedule(task)
        with too_late(r"queue\('default'\)"):
            app.queue("default", claim="advisory")
        assert [task.name for task in app.registry] == ["early"]
    app.every(seconds=1)(task)  # the next node reads it
    app.task(name="late")(work)
    async with app.node():
        await until_async(lambda: scheduled(app))


async def test_a_process_that_runs_no_jobs_may_import_a_task_when_it_needs_it(app: App):
    async with app.node(execute=False):
        job = await app.task(name="late")(work).enqueue()
        assert (await job.get()).task_name == "late"
        with too_late("a schedule"):
            app.every(seconds=1)(work)
        assert [task.name for task in app.registry] == ["late"], "a refused schedule leaves no task"


async def test_a_node_that_could_not_start_binds_nobody(app: App):
    app.configure(dsn="postgresql://nobody@/nothing?host=/nowhere")
    with pytest.raises(Exception, match="nowhere"):
        async with app.node():
            raise AssertionError("a node without a database")
    app.every(seconds=1)(work)
