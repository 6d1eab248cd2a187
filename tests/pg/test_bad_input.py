"""Bad input gets a clear error and loses nothing: what is in the table, and what handlers do."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from leasework import App, Discard
from leasework.cli.root import root
from leasework.errors import BadPayload, JobFailed
from leasework.model.job import Unreadable, decode, encode
from leasework.model.states import State
from leasework.tuning import Tuning
from tests.pg.bench import Bench
from tests.support.wait import until_async

Sql = Callable[..., Awaitable[list[Any]]]

DEEP = '{"a": ' + "[" * 12_000 + "]" * 12_000 + "}"  # Python 3.13 reads 10,000 levels
HUGE = '{"a": 1e9000}'


async def reaches(app: App, job: Any, state: State) -> Any:
    async def there() -> Any:
        record = await app.get(job)
        return record if record.state is state else None

    return await until_async(there, 20, what=f"{state}")


# -- unknown tasks ---------------------------------------------------------------------------------
async def test_a_task_that_nobody_knows_waits_and_runs_when_a_worker_joins_that_knows_it(
    app: App, dsn: str, sql: Sql
) -> None:
    @app.task(name="known")
    async def known() -> int:
        return 1

    [(job, _)] = await sql('select * from leasework.enqueue(\'{"task": "new"}\')')
    async with app.node():
        record = await reaches(app, job, State.SCHEDULED)
        assert (record.held_because, record.attempt) == ("unknown_task", 0)
        assert await (await known.enqueue()).wait(60) == 1  # the others go on
        assert await until_async(
            lambda: sql("select 1 from leasework.events where kind = 'job_unknown'")
        )
        newer = App(dsn, release="newer")

        @newer.task(name="new")
        async def new() -> str:
            return "ran"

        async with newer.node():
            assert (await reaches(app, job, State.COMPLETED)).result == "ran"
        await newer.close()


async def test_unknown_tasks_and_versions_are_reported_once_by_name_and_only_so_many(
    app: App, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="known")
    async def known() -> None: ...

    monkeypatch.setattr(Tuning, "unknown_tasks", 3)
    await sql(
        "select leasework.enqueue(o) from generate_series(2, 9) n, generate_series(1, 2), "
        "lateral (values (jsonb_build_object('task', 'new' || n)), "
        "(jsonb_build_object('task', 'known', 'version', n))) k (o)"
    )

    async def held() -> bool:  # of the first three names, one job is left alone
        held = await sql("select held_because from leasework.job where held_because is not null")
        return len(held) >= 2 * 2 * 8 - 3

    async with app.node():
        await until_async(held, 30, "all jobs are held back")
    [[first, names]] = await sql(
        "select count(*), count(distinct fields ->> 'task') from leasework.events "
        "where kind = 'job_unknown'"
    )
    assert (first, names) == (6, 6)


# -- arguments -------------------------------------------------------------------------------------
async def test_arguments_that_cannot_be_stored_are_refused_where_they_are_given(
    app: App, sql: Sql
) -> None:
    @app.task(name="t")
    async def work(a: Any = None) -> None: ...

    bad: list[tuple[Any, str]] = [
        (object(), "not JSON"),
        ("a\x00b", "NUL"),
        ("\ud800", "surrogate"),
        (10**5000, "not JSON"),
        ("x" * (1 << 20), "over the limit of 1048576"),
        ("x" * 100_000_000, "over the limit"),
    ]
    for value, why in bad:
        with pytest.raises(BadPayload, match=f"arguments of t.*{why}"):
            await work.enqueue(a=value)
        with pytest.raises(BadPayload):
            await app.enqueue_many([work.job(), work.job(a=value)])
    assert await sql("select * from leasework.job") == []
    assert (await work.enqueue(a="fine")).created


@pytest.mark.parametrize("text", ["\udcff", "a\x00b"])
async def test_text_that_postgresql_cannot_have_is_refused_wherever_it_is_asked_for(
    app: App, text: str
) -> None:
    r"""``\udcff`` is what Python makes of a byte of the command line that is not UTF-8."""
    inspector = await app.inspect()
    asked = (
        lambda: app.jobs(queue=text),
        lambda: app.jobs(task=text),
        lambda: inspector.ticks(text, 10),
        lambda: inspector.deadlines(None, text, 10),
    )
    store = await app.store()
    for ask in asked:
        with pytest.raises(BadPayload, match="cannot store"):
            await ask()
    with pytest.raises(BadPayload, match="cannot store"):
        params = {"schedule": text, "limit": 1, "now": None}
        await store.pool.fetch("schedule/ticks", params, aside=True)
    assert await app.jobs() == [], "the connections are as good as before"


def test_an_argument_of_the_command_line_that_is_not_utf8_is_told(migrated: str) -> None:
    words: tuple[tuple[str, ...], ...] = (
        ("jobs", "--queue", "\udcff"),
        ("jobs", "--task", "\udcff"),
        ("schedules", "ticks", "\udcff"),
        ("deadlines", "--name", "\udcff"),
    )
    for given_words in words:
        verb, *rest = given_words
        done = CliRunner().invoke(root, [verb, "--dsn", migrated, *rest], prog_name="leasework")
        assert isinstance(done.exception, SystemExit), given_words
        assert done.exit_code in (1, 2) and "cannot store" in done.output


async def test_the_database_has_the_limit_too(app: App, sql: Sql) -> None:
    big = "select leasework.enqueue(jsonb_build_object('task', 't', 'payload', {}))"
    for payload in (
        "jsonb_build_object('a', repeat('x', 1100000))",
        "jsonb_build_object('a', repeat('x', 20000000))",
    ):
        with pytest.raises(psycopg.Error, match="over the limit of 1048576"):
            await sql(big.format(payload))
    with pytest.raises(psycopg.Error, match="unsupported Unicode escape"):
        await sql("""select leasework.enqueue('{"task": "t", "payload": {"a": "\\u0000"}}')""")
    with pytest.raises(psycopg.Error, match="invalid input syntax for type json"):
        await sql("select leasework.enqueue('{task: t}')")
    with pytest.raises(psycopg.Error, match="stack depth limit"):
        deep = "[" * 100_000 + "]" * 100_000
        await sql("select leasework.enqueue(%s::jsonb)", [f'{{"task": "t", "payload": {deep}}}'])
    assert await sql("select * from leasework.job") == []


async def test_a_limit_of_ones_own_counts_on_the_users_connection_as_well(
    dsn: str, migrated: str
) -> None:
    app = App(dsn, payload_limit=100)

    @app.task(name="t")
    async def work(a: str) -> None: ...

    with pytest.raises(BadPayload, match="over the limit of 100"):
        work.job(a="x" * 100)
    wide = App(dsn, payload_limit=3 << 20)

    @wide.task(name="t")
    async def wider(a: str) -> int:
        return len(a)

    async with wide.node():
        async with await psycopg.AsyncConnection.connect(migrated) as user:
            job = await wider.using(on=user).enqueue(a="x" * (2 << 20))
        assert await job.wait(60) == 2 << 20
    await app.close()
    await wide.close()


async def test_unreadable_arguments_are_held_back_and_harm_no_neighbour(app: App, sql: Sql) -> None:
    """A claim that broke on them would leave a whole batch running for ever."""

    @app.task(name="t")
    async def work(a: Any = None) -> int:
        return 1

    good = [await work.enqueue() for _ in range(3)]
    bad = []
    for payload in (DEEP, HUGE):
        [(job,)] = await sql(
            "select id from leasework.enqueue(%s::jsonb)",
            [f'{{"task": "t", "payload": {payload}}}'],
        )
        bad.append(job)
    [(job,)] = await sql(
        "insert into leasework.job (id, queue, task_name, payload)"
        " values (gen_random_uuid(), 'default', 't', '[1]') returning id"
    )
    good += [await work.enqueue() for _ in range(3)]
    async with app.node():
        for job_ in good:
            assert await job_.wait(60) == 1
        for unreadable in (*bad, job):
            record = await reaches(app, unreadable, State.SCHEDULED)
            assert "its arguments cannot be read" in record.last_error
            assert (record.held_because, record.attempt) == ("unreadable", 0)

        async def told() -> Any:
            problems = await (await app.inspect()).problems()
            return [p for p in problems if p.kind == "job_unreadable"]

        await until_async(told, 30, "the problem")
        # mended by hand, or by a worker that can read it
        await sql("update leasework.job set payload = '{}' where id = %s", [job])
        assert await app.retry(job)
        assert (await reaches(app, job, State.COMPLETED)).result == 1
        assert isinstance((await app.get(bad[0])).payload, Unreadable)
        assert len(await app.jobs()) == 9


async def test_arguments_that_do_not_fit_the_handler_fail_with_its_words(
    app: App, sql: Sql
) -> None:
    @app.task(name="t")
    async def work(user_id: int) -> None: ...

    request = {"task": "t", "payload": {"usr": 1}, "max_attempts": 1}
    [(job,)] = await sql("select id from leasework.enqueue(%s::jsonb)", [json.dumps(request)])
    async with app.node():
        record = await reaches(app, job, State.DISCARDED)
    assert "unexpected keyword argument 'usr'" in record.last_error


# -- results and outcomes --------------------------------------------------------------------------
async def test_an_outcome_that_the_database_refuses_fails_alone(
    app: App, monkeypatch: pytest.MonkeyPatch, sql: Sql
) -> None:
    """Whatever slips through our own checks: it is found in its batch, and the others are
    written."""

    def unchecked(label: str, value: Any, limit: int) -> str:
        return json.dumps(value)

    monkeypatch.setattr("leasework.model.outcome.encode", unchecked)

    @app.task(name="t")
    async def work(n: int) -> Any:
        return "\x00" if n % 50 == 7 else n

    await app.enqueue_many([work.job(n=n) for n in range(200)])
    async with app.node():
        wanted = [("completed", 196), ("discarded", 4)]
        await until_async(lambda: states(sql, wanted), what="all outcomes")
    [(error,)] = await sql(
        "select distinct last_error from leasework.jobs where state <> 'completed'"
    )
    assert "its outcome cannot be stored" in error and "cannot be converted to text" in error


async def states(sql: Sql, wanted: Any) -> bool:
    return await sql("select state, count(*) from leasework.jobs group by 1 order by 1") == wanted


async def test_errors_of_any_size_and_shape_are_kept(app: App) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise LookupError("no words")

    @app.task(name="t", max_attempts=1)
    async def work(what: str) -> None:
        raise {
            "large": ValueError("x" * 1_000_000),
            "odd": Odd(),
            "bytes": OSError(2, "none", b"\xff".decode("utf-8", "surrogateescape")),
        }[what]

    async with app.node():
        for what, words in (
            ("large", "ValueError: xxx"),
            ("odd", "Odd"),
            ("bytes", "FileNotFoundError"),
        ):
            job = await work.enqueue(what=what)
            with pytest.raises(JobFailed):
                await job.wait(60)
            error = (await job.get()).last_error
            assert error and error.startswith(words) and len(error) <= 8000


async def test_a_reason_without_a_text_takes_no_slot(app: App) -> None:
    class Mute:
        def __str__(self) -> str:
            raise LookupError

    @app.task(name="t")
    async def work(n: int) -> Any:
        return n if n else Discard(Mute())  # type: ignore[arg-type]

    async with app.node(queues={"default": 1}):
        mute = await work.enqueue(n=0)
        record = await reaches(app, mute.id, State.DISCARDED)
        assert record.last_error == "(its str() raised LookupError)"
        assert await (await work.enqueue(n=1)).wait(60) == 1


async def test_a_job_that_ran_32767_times_keeps_no_other_from_being_claimed(
    app: App, bench: Bench, sql: Sql
) -> None:
    jobs = [await bench.enqueue(), await bench.enqueue()]
    await sql("update leasework.job set attempt = 32767 where id = %s", [jobs[0]])
    claimed = {job.id: job.attempt for job in await bench.claim()}
    assert claimed == {jobs[0]: 32767, jobs[1]: 1}


# -- what is stored is what is read --------------------------------------------------------------
def same(a: Any, b: Any) -> bool:
    """Equal as jsonb sees it: a large float comes back as the whole number that it shows."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return float(a) == float(b)
    return type(a) is type(b) and a == b


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)  # fmt: skip


async def test_what_is_encoded_comes_back_from_a_real_column(direct_dsn: str) -> None:
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        connection.execute("create table box (value jsonb)")

        @hypothesis_settings(
            max_examples=150, deadline=None, suppress_health_check=list(HealthCheck)
        )
        @given(values)
        def holds(value: Any) -> None:
            try:
                text = encode("it", value, 1 << 20)
            except BadPayload:
                return
            row = connection.execute(
                "with t as (insert into box values (%s::jsonb) returning value)"
                " select value::text from t",
                [text],
            ).fetchone()
            assert row and same(decode(row[0]), value)

        holds()
