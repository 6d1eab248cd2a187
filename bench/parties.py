"""Who is measured, and where the peers' environments are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from bench.process import Contender, SideFailed, commit
from bench.redis import program

CACHE = Path(os.environ.get("LEASEWORK_BENCH_CACHE") or Path.home() / ".cache" / "leasework-bench")


_PGQUEUER = ("pgqueuer", "asyncpg", "uvloop")
_CELERY = "redis with appendfsync everysec, hiredis, solo pool, prefetch 1000, no results"
_PROCRA = "psycopg's C code, uvloop, concurrency 100"
_CHANCY = "psycopg's C code, uvloop, AsyncExecutor, concurrency 1000, eager polling"
_PSYCOPG = ("psycopg[binary]", "uvloop")


def _peer(name: str, module: str, settings: str, share: float, *packages: str) -> Contender:
    made_of = crc32(" ".join(packages).encode())  # other packages, another environment
    python = str(CACHE / f"{name}-{made_of:08x}" / "bin" / "python")
    return Contender(name, module, settings, python, packages, share, redis=name == "celery")


RAW = Contender("raw loop", "raw", "asyncpg, LISTEN, claims and acks of 100 on one connection")
LEASEWORK = Contender("leasework", "lease", "defaults")
ADVISORY = Contender(
    "advisory",
    "lease",
    'leasework with app.queue("default", claim="advisory")',
    share=0.2,
    work=(("claim", "advisory"),),
)
UVLOOP = Contender("leasework, uvloop", "lease", "uvloop", work=(("loop", "uvloop"),))
_PEERS = (
    _peer("pgqueuer", "pgq", "asyncpg, uvloop, batches of 1000", 0.4, *_PGQUEUER),
    _peer("procrastinate", "procra", _PROCRA, 0.02, "procrastinate", *_PSYCOPG),
    _peer("chancy", "chan", _CHANCY, 0.2, "chancy", *_PSYCOPG),
    _peer("celery", "celer", _CELERY, 0.05, "celery[redis]", "redis[hiredis]"),
)
RAW500 = Contender(
    "raw loop, 500",
    "raw",
    "the same with claims and acks of 500",
    work=(("batch", 500),),
)
OVERLAPPED = Contender(
    "raw loop, overlapped",
    "overlapped",
    "asyncpg, uvloop, LISTEN, an index on the id alone, two loops with claims and acks of 100",
)
PEERS = {peer.name: peer for peer in _PEERS}
OTHERS = {
    **PEERS,
    ADVISORY.name: ADVISORY,
    "uvloop": UVLOOP,
    "raw500": RAW500,
    "raw-overlapped": OVERLAPPED,
}
DURABLE = Contender("leasework", "durable", "defaults")
_ABSURD = "asyncio worker, claim timeout 120 s, as many tasks at once as slots"
DURABLE_PEERS = {
    "dbos": _peer("dbos", "dbo", "workflows of a queue, async steps", 1, "dbos"),
    "absurd": _peer("absurd", "absur", _ABSURD, 1, "absurd-sdk", "psycopg[binary]"),
}
"""They have steps."""

_LIMITS = {
    "pgqueuer": "an entrypoint with concurrency_limit=2 for each key",
    "procrastinate": "two locks for each key, polling each 0.5 s, a task that retries stalled jobs",
    "dbos": "partition_concurrency=2, a new worker has the executor id of the killed one",
}
LIMITED_PEERS = {
    name: replace((PEERS | DURABLE_PEERS)[name], settings=settings, share=1.0)
    for name, settings in _LIMITS.items()
}
"""They have a limit of the jobs that run at once in all processes, or a lock."""


BUILD = "build="
"""Before the path of another checkout of leasework."""


def chosen(names: Sequence[str]) -> list[Contender]:
    """The raw loop, leasework, and those of these names; ``peers`` is all of them."""
    others = {name: build(name) for name in names if name.startswith(BUILD)} | OTHERS
    unknown = [name for name in names if name not in (*others, "peers")]
    if unknown:
        known = f"peers, {BUILD}PATH, {', '.join(OTHERS)}"
        raise SystemExit(f"unknown: {', '.join(unknown)}. Known: {known}")
    wanted = [*(PEERS if "peers" in names else ()), *(name for name in names if name != "peers")]
    return [RAW, LEASEWORK, *(made(others[name]) for name in dict.fromkeys(wanted))]


def durable(names: Sequence[str]) -> list[Contender]:
    """leasework, and those with steps of these names; ``peers`` is all of them."""
    if unknown := set(names) - {*DURABLE_PEERS, "peers"}:
        raise SystemExit(f"unknown: {', '.join(unknown)}. Known: peers, {', '.join(DURABLE_PEERS)}")
    wanted = DURABLE_PEERS if "peers" in names else dict.fromkeys(names)
    return [DURABLE, *(made(DURABLE_PEERS[name]) for name in wanted)]


def limited(names: Sequence[str]) -> list[Contender]:
    """leasework, and those with limits of these names; ``peers`` is all of them."""
    if unknown := set(names) - {*LIMITED_PEERS, "peers"}:
        raise SystemExit(f"unknown: {', '.join(unknown)}. Known: peers, {', '.join(LIMITED_PEERS)}")
    wanted = LIMITED_PEERS if "peers" in names else dict.fromkeys(names)
    return [LEASEWORK, *(made(LIMITED_PEERS[name]) for name in wanted)]


def build(name: str) -> Contender:
    """leasework of another checkout, with its own venv. It has the API of its own
    ``bench.contenders``. Ends the command where there is none."""
    root = Path(name.removeprefix(BUILD)).resolve()
    python = root / ".venv" / "bin" / "python"
    if not (python.exists() and (root / "bench" / "contenders" / "lease.py").exists()):
        raise SystemExit(f"{root} is no checkout of leasework with a venv: make .venv/.has-test")
    what = f"build {commit(root)}"
    return Contender(what, "lease", "another checkout, defaults", str(python), root=root)


def made(peer: Contender) -> Contender:
    """With its environment: the newest of PyPI when it is made. Ends the command, before anything
    is measured, where what it needs is not there."""
    if peer.redis:
        try:
            program()
        except SideFailed as error:
            raise SystemExit(str(error)) from None
    folder = Path(peer.python).parents[1]
    if peer.packages and not Path(peer.python).exists():
        print(f"installing {' '.join(peer.packages)} in {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [peer.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *peer.packages], check=True)
    return peer


def version(peer: Contender) -> str:
    """Of its package, or of this tree."""
    if not peer.packages:
        return ""
    name = peer.packages[0].partition("[")[0]
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = subprocess.run([peer.python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()
