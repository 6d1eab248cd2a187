"""The command line, given whatever: it ends with 0, 1 or 2 and says why in a line or two."""

from __future__ import annotations

import traceback
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

from leasework import App
from leasework.cli.root import root
from tests.hostile.strategies import odd_text, quick
from tests.support.procs import Processes
from tests.support.wait import until

APP = "tests.e2e.apps.worker:app"
NOWHERE = "postgresql://u:hunter2SECRET@127.0.0.1:1/d"


def invoke(*arguments: str) -> str:
    """Everything that it said; it must end as a command ends."""
    done = CliRunner().invoke(root, arguments, prog_name="leasework")
    failed = done.exception
    if failed is not None and not isinstance(failed, SystemExit):
        raise AssertionError("".join(traceback.format_exception(failed)))
    assert done.exit_code in (0, 1, 2)
    assert "Traceback" not in done.output and "hunter2SECRET" not in done.output
    return done.output


words = odd_text.filter(lambda text: "\x00" not in text)  # no argument can hold a NUL
queues = st.builds("{}{}{}".format, words, st.sampled_from(["=", "==", ""]),
                   st.sampled_from(["5", "0", "-1", "٣", "1e3", "9" * 5000, "99999999"]) | words,
                   )  # fmt: skip


@settings(quick, max_examples=60)
@given(words, queues, st.sampled_from(["1", "0", "-1", "x", "1001"]))
def test_arguments_of_a_worker(target: str, queue: str, processes: str) -> None:
    said = invoke("worker", "--queue", queue, "--processes", processes, "--", f"no_such:{target}")
    assert said.strip()


@settings(quick, max_examples=60)
@given(
    st.sampled_from(
        [["jobs", "show"], ["jobs", "cancel"], ["jobs", "retry"], ["jobs"], ["events"], ["ticks"],
         ["schedules", "pause"], ["schedules", "ticks"], ["leaders"], ["schema", "verify"]]
    ),
    st.lists(
        words | st.sampled_from(["--json", "--limit", "--state", "--kind", "--", "--schema"]),
        max_size=3,
    ),
)  # fmt: skip
def test_arguments_of_the_verbs(verb: list[str], rest: list[str]) -> None:
    assert invoke(*verb[:1], "--dsn", NOWHERE, *verb[1:], *rest).strip()


@settings(quick, max_examples=60)
@given(words)
def test_a_dsn_and_a_schema_on_the_command_line(text: str) -> None:
    assert invoke("jobs", "--dsn", f"mysql://{text}").strip()
    assert invoke("jobs", "--dsn", NOWHERE, "--schema", text).strip()


def test_a_number_of_slots_that_no_worker_has_is_refused() -> None:
    for slots in ("9" * 5000, "10001", "0"):
        said = invoke("worker", "--queue", f"work={slots}", APP)
        assert "is not name=slots" in said and len(said) < 1000


# -- queues that no task uses ----------------------------------------------------------------------
async def test_a_queue_that_no_task_uses_is_named_with_the_nearest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("postgresql://")
    app.task(name="t", queue="mail")(lambda: None)
    app.periodic("0 * * * *", name="s", queue="reports")(app.task(name="u")(lambda: None))
    await app.make_node({"mial": 3, "reports": 1})
    [said] = [record.getMessage() for record in caplog.records]
    assert "no task uses the queue 'mial'" in said and "Did you mean 'mail'?" in said


# -- a real worker ---------------------------------------------------------------------------------
def test_no_process_of_a_worker_shows_the_dsn_in_its_arguments(
    procs: Processes, direct_dsn: str, tmp_path: Path
) -> None:
    """Only the parent's own, which somebody typed; a DSN may hold a password, and ps shows all."""
    environ = {"LEASEWORK_DSN": "postgresql://wrong", "JOURNAL": str(tmp_path / "journal")}
    done = procs.start("-m", "leasework", "schema", "apply", "--dsn", direct_dsn, env=environ)
    assert done.wait(60) == 0
    worker = procs.start(
        *("-m", "leasework", "worker", APP, "--processes", "2"),
        *("--dsn", direct_dsn, "--queue", "wrok=3"),
        env=environ,
    )
    with psycopg.connect(direct_dsn, autocommit=True) as look:
        joined = until(
            lambda: [p for (p,) in look.execute("select pid from leasework.node").fetchall()][1:],
            60,
            "two workers with the DSN of the command line",
        )
    assert joined
    children = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _parent(entry) == worker.pid
    ]
    assert len(children) == 2
    for pid in children:
        assert direct_dsn not in Path(f"/proc/{pid}/cmdline").read_text()
    worker.wait_for(r"no task uses the queue 'wrok'.* Did you mean 'work'")


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
