"""Start: imports and the command line's help, beside bare Python and the driver."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import click

from bench.command import common, run
from bench.report import Result

_CASES = {
    "bare python": ["-c", "pass"],
    "import psycopg": ["-c", "import psycopg"],
    "import leasework": ["-c", "import leasework"],
    "leasework --help": ["-m", "leasework", "--help"],
    "import asyncpg": ["-c", "import asyncpg"],
}


def seconds_of(arguments: list[str]) -> float:
    """From the fork to the end."""
    start = time.monotonic()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


@click.command("startup")
@common(rounds=15)
def command(**options: Any) -> None:
    """Imports and ``leasework --help``."""
    with run(**options) as this:
        said = "the whole process, warm files"
        result = Result("Start", said, {"milliseconds": "ms"}, "import psycopg")
        this.results.append(result)
        cases = list(_CASES.items())
        for turn in range(this.rounds):
            for name, arguments in cases if turn % 2 == 0 else cases[::-1]:
                result.add(name, {"milliseconds": seconds_of(arguments) * 1000})
