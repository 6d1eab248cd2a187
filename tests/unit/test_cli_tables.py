"""Tables in terminals of any width: one line per row, and what goes when there is no room."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.cells import cell_len

from leasework.cli import deadlines, output, tables
from leasework.cli.fitting import Column, fit

NOW = datetime(2026, 11, 23, 4, 33, 13, tzinfo=UTC)
JOBS: list[dict[str, Any]] = [
    {
        "id": f"019ab3c4-55e6-7{n:03x}-9d1f-{n:012x}",
        "task_name": "billing.invoices.send_reminder",
        "queue": "mail-low-priority",
        "state": "discarded",
        "attempt": 12,
        "max_attempts": 20,
        "crashes": 0,
        "scheduled_for": NOW,
        "started_at": NOW,
        "completed_at": NOW,
        "worker_id": f"billing-worker-7d9f8b6c5-x2x9q:{n}:9fd4e2",
        "last_error": "ConnectionRefusedError: [Errno 111] Connect call failed ('10.2.0.17', 25)",
    }
    for n in range(3)
]


def fitted(
    rows: list[dict[str, Any]], columns: list[Column], width: int
) -> tuple[list[str], list[str], bool]:
    return fit(columns, [[output.text(c.show(row)) for c in columns] for row in rows], width)


@pytest.mark.parametrize("width", [20, 40, 80, 100, 160, 400])
def test_a_row_is_one_line_that_the_terminal_holds(width):
    lines, _, _ = fitted(JOBS, tables.JOBS, width)
    assert len(lines) == len(JOBS) + 1
    assert all(cell_len(line) <= width for line in lines)


def test_less_important_columns_go_first_and_come_back_with_the_width():
    heads = {width: fitted(JOBS, tables.JOBS, width)[0][0].split() for width in (80, 100, 160)}
    assert heads[80] == ["id", "task", "queue", "state", "last", "error"]
    assert heads[100] == ["id", "task", "queue", "state", "attempt", "last", "error"]
    lines, left_out, shortened = fitted(JOBS, tables.JOBS, 400)
    assert left_out == [] and not shortened
    assert JOBS[0]["last_error"] in lines[1]


def test_shortened_ids_differ_and_are_beginnings_of_the_ids():
    shown = [line.split()[0] for line in fitted(JOBS, tables.JOBS, 80)[0][1:]]
    assert len(set(shown)) == len(JOBS)
    for job, short in zip(JOBS, shown, strict=True):
        assert job["id"].startswith(short) and len(short) == 18
    twins = [{**JOBS[0], "id": f"019ab3c4-55e6-7000-9d1f-00000000000{n}"} for n in (1, 2)]
    assert len({line.split()[0] for line in fitted(twins, tables.JOBS, 80)[0][1:]}) == 2


def test_a_column_without_values_goes_before_those_with_values():
    fine = [{**job, "last_error": None} for job in JOBS]
    _, left_out, _ = fitted(fine, tables.JOBS, 80)
    assert "last error" in left_out and "queue" not in left_out


def test_wide_characters_count_for_two():
    rows = [{"name": "定期報告の作成" * 4, "n": 1}]
    columns = [Column("name", lambda row: row["name"], cut=8), Column("n", lambda row: row["n"])]
    _, line = fitted(rows, columns, 20)[0]
    assert cell_len(line) <= 20 and line.endswith("1") and "…" in line


@pytest.mark.parametrize(
    "columns",
    [
        tables.JOBS, tables.ATTEMPTS, tables.SCHEDULES, tables.TICKS, tables.LEADERS, tables.TERMS,
        tables.LOCKS, tables.NODES, tables.EVENTS, deadlines.COLUMNS, deadlines.UNHANDLED,
    ],
)  # fmt: skip
def test_what_names_a_row_of_any_table_fits_80_columns(columns):
    """Every column that always stays, with the longest value that it shows without a cut."""
    heads = [column.heading for column in columns if column.rank == 0]
    longest = {"since": 19, "due": 19, "at": 19, "event": 24, "mode": 17, "state": 11}
    cells = ["x" * max(c.cut, c.short, longest.get(c.heading, len(c.heading))) for c in columns]
    lines, left_out, _ = fit(columns, [cells], 80)
    assert lines[0].split() and not set(heads) & set(left_out)
    assert "…" not in lines[1][-1:]


def test_a_schedule_that_was_put_has_no_release_to_show():
    [release] = [column for column in tables.SCHEDULES if column.heading == "release"]
    assert release.show({"release": "put 019ab3c4-55e6-7000-9d1f-000000000000"}) == "(put)"
    assert release.show({"release": "v7"}) == "v7"
