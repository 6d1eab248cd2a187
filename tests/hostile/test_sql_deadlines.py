"""The option ``deadline`` of ``leasework.enqueue(jsonb)`` by hand: refused, or its breach is told.

One that a sweep cannot tell would keep every other one untold as well.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import given, settings, strategies as st

from leasework.pg.sql import statement
from tests.hostile.strategies import quick
from tests.hostile.test_sql_input import enqueue, refused_clearly, rows, values

SWEEP = statement("deadline/sweep", "leasework")
CALLBACK = {
    "task": '"page"', "queue": '"pages"', "priority": "-5", "max_attempts": "3", "timeout": "1e-3",
    "requeue_after": "60",
}  # fmt: skip
DEADLINE = {
    "seconds": "60", "since": '"scheduled"', "at": '"2999-01-01T00:00:00Z"',
    "until": '"finished"', "name": '"slow"',
}  # fmt: skip


def written(right: dict[str, str], first: str) -> st.SearchStrategy[str]:
    """An object of some of these options, one of which may have any value."""
    return st.builds(
        lambda names, odd, value: (
            "{" + first + ",".join(f'"{n}":{value if n == odd else right[n]}' for n in names) + "}"
        ),
        st.lists(st.sampled_from(list(right)), min_size=1, unique=True),
        st.sampled_from([*right, *[""] * len(right)]),
        values,
    )


callbacks = written(CALLBACK, '"task":"page",') | st.just('"page"') | values
objects = st.builds(
    lambda written, callback: written[:-1] + f',"on_breach":{callback}}}',
    written(DEADLINE, ""),
    callbacks,
)
deadlines = objects | values


async def test_any_deadline_is_refused_clearly_or_its_breach_has_its_callback(
    connection: Any,
) -> None:
    kept = 0

    @settings(quick, max_examples=400)
    @given(deadlines)
    def holds(deadline: str) -> None:
        nonlocal kept
        answer = enqueue(connection, f'{{"task":"t","payload":{{}},"deadline":{deadline}}}')
        if isinstance(answer, psycopg.Error):
            assert rows(connection) == 0, "something was written"
            refused_clearly(answer)
            return
        [(count,)] = connection.execute("select count(*) from leasework.deadline").fetchall()
        kept += count
        connection.execute(
            "update leasework.deadline set state = 'armed', due_at = now() - interval '1 s'"
        )
        swept = connection.execute(SWEEP, {"now": None, "limit": 100}).fetchall()
        pages = connection.execute(
            "select task_name, queue, priority from leasework.job where task_name <> 't'"
        )
        assert len(pages.fetchall()) == count
        assert count == 0 or len(swept) == count
        connection.rollback()

    holds()
    assert kept > 5, "hardly anything was right: the test tests too little"


ONE_BAD = [
    ('{"task":"page","priority":99999}', "whose priority must be a whole number"),
    ('{"task":"page","priority":"high"}', "whose priority must be a whole number"),
    ('{"task":"page","timeout":0}', "whose timeout must be a number from 0.001"),
    ('{"task":"page","queue":5}', "whose queue must be text"),
    ('{"task":"page","prio":5}', "whose prio is not known"),
    ('{"queue":"pages"}', "needs on_breach, the name of a task"),
    ('["page"]', "needs on_breach, the name of a task"),
]


@pytest.mark.parametrize(("callback", "words"), ONE_BAD, ids=[callback for callback, _ in ONE_BAD])
async def test_a_callback_that_cannot_become_a_job_never_gets_in(
    connection: Any, callback: str, words: str
) -> None:
    deadline = f'{{"seconds":60,"on_breach":{callback}}}'
    answer = enqueue(connection, f'{{"task":"t","payload":{{}},"deadline":{deadline}}}')
    assert isinstance(answer, psycopg.Error) and words in str(answer), answer
    assert answer.sqlstate == "LH002" and rows(connection) == 0
    # nor does it by hand
    enqueue(connection, '{"task":"t","payload":{},"deadline":{"seconds":60,"on_breach":"page"}}')
    with pytest.raises(psycopg.errors.CheckViolation, match='check constraint "callback"'):
        connection.execute("update leasework.deadline set callback = %s::jsonb", [callback])


FAR = [
    '"run_at":"9999-06-01T00:00:00Z","deadline":{"seconds":31536000,"on_breach":"page"}',
    '"deadline":{"since":"fixed","at":"20000-01-01T00:00:00Z","on_breach":"page"}',
    '"deadline":{"since":"fixed","at":"infinity","on_breach":"page"}',
]


@pytest.mark.parametrize("options", FAR)
async def test_no_deadline_is_in_a_year_that_clients_cannot_read(
    connection: Any, options: str
) -> None:
    answer = enqueue(connection, f'{{"task":"t","payload":{{}},{options}}}')
    assert isinstance(answer, psycopg.Error) and rows(connection) == 0
    refused_clearly(answer)


async def test_no_key_of_a_job_is_that_of_a_breach(connection: Any) -> None:
    job = '{"task":"t","payload":{},"deadline":{"seconds":60,"on_breach":"page"}}'
    [(job_id, _)] = enqueue(connection, job)
    enqueue(connection, f'{{"task":"deadline","payload":{{}},"unique":"{job_id}"}}')
    connection.execute("update leasework.deadline set due_at = now() - interval '1 s'")
    assert len(connection.execute(SWEEP, {"now": None, "limit": 100}).fetchall()) == 1
    pages = connection.execute("select 1 from leasework.job where task_name = 'page'")
    assert len(pages.fetchall()) == 1, "the breach was written, and nobody is called"
