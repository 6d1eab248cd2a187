"""The tables of the command line in real terminals of several widths, and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.test_cli import Cli, bare, cli, enqueue

__all__ = ["bare", "cli"]
TABLES = ("jobs", "schedules", "leaders", "nodes", "events", "locks", "deadlines")
WIDTHS = (80, 100, 160)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def in_terminal(dsn: str, width: int, *arguments: str) -> list[str]:
    """What a terminal of this width shows, without its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environ = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "leasework", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environ, "LEASEWORK_DSN": dsn, "TERM": "xterm-256color"},
        cwd=Path(__file__).parents[2],
    )
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0, said
    return ESCAPES.sub("", said.decode()).splitlines()


@pytest.fixture
def busy(cli: Cli) -> Cli:
    enqueue(cli.dsn, 2, queue="mail-low-priority")
    cli.sql(
        "update leasework.job set last_error = "
        "'ConnectionRefusedError: [Errno 111] Connect call failed (''10.2.0.17'', 25)'"
    )
    return cli


def test_two_jobs_are_two_lines_in_a_terminal_of_any_width(busy: Cli):
    for width in WIDTHS:
        heading, *lines = in_terminal(busy.dsn, width, "jobs")
        assert heading.split()[:2] == ["id", "task"] and max(map(len, lines)) <= width
        assert [line.split()[1] for line in lines[:2]] == ["shop.mail", "shop.mail"]
        assert len(lines) == 2 or (lines[2].endswith("--wide for everything.") and len(lines) == 3)


def test_every_table_fits_the_terminal(busy: Cli):
    for verb in TABLES:
        for line in in_terminal(busy.dsn, 80, verb):
            assert len(line) <= 80, f"{verb}: {line}"


def test_wide_and_a_pipe_show_whole_ids_and_all_columns(busy: Cli):
    piped = busy("jobs").stdout.splitlines()
    wide = in_terminal(busy.dsn, 80, "jobs", "--wide")
    for lines in (piped, wide):
        assert lines[0].split()[-2:] == ["LAST", "ERROR"] and "WORKER" in lines[0]
        assert all(UUID(line.split()[0]) and "'10.2.0.17', 25" in line for line in lines[1:])


def test_commands_take_the_shortened_id_that_a_terminal_shows(busy: Cli):
    _, first, second, *_ = in_terminal(busy.dsn, 80, "jobs")
    short, other = first.split()[0], second.split()[0]
    assert len(short) < 36
    whole = busy.json("jobs", "show", short)["id"]
    assert whole.startswith(short)
    assert busy("jobs", "cancel", short).stdout == f"Job {whole} was cancelled.\n"
    assert busy.json("jobs", "show", short)["state"] == "cancelled", "also a finished one"
    assert busy.json("jobs", "show", other)["state"] == "available"
    assert whole in busy("jobs", "retry", short).stdout
    assert whole in busy("jobs", "discard", short).stdout


def test_a_beginning_of_several_ids_names_them_and_acts_on_none(busy: Cli):
    busy.sql("delete from leasework.job")
    ids = [f"019ab3c4-55e6-7000-9d1f-00000000000{n}" for n in (1, 2)]
    for job in ids:
        busy.sql(f"""select leasework.enqueue('{{"task": "a", "id": "{job}"}}')""")
    said = busy.refused("jobs", "cancel", "019ab3c4-55e6")
    assert "the ids of several jobs begin like this" in said and all(job in said for job in ids)
    assert {row["state"] for row in busy.json("jobs")} == {"available"}
    assert "no job's id begins like this" in busy.refused("jobs", "show", "019ab3c4-ff")
    assert "a job's id is a UUID" in busy.refused("jobs", "cancel", "019ab")
