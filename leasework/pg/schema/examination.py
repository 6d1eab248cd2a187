"""Examines a database for the doctor: queries it and watches it for some seconds, without judging.

It opens connections of its own instead of a Session, which would refuse what the doctor describes.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg

from leasework import errors, own_tasks
from leasework.config import Settings
from leasework.env import Env
from leasework.pg.connection.connect import connect, read_iso
from leasework.pg.connection.fast.exchange import Row
from leasework.pg.connection.fast.link import Link
from leasework.pg.connection.faults import translate
from leasework.pg.connection.pool import Pool
from leasework.pg.connection.session import connect_options
from leasework.pg.schema import migrate
from leasework.pg.schema.roles import ADMIN, ROLES, rights
from leasework.pg.sql import in_sql, statement
from leasework.pg.stores.reports import PgReports
from leasework.ports.doctor import NEVER, SESSION, TRANSACTION, Clocks, Examination, Gaps, Tokens
from leasework.tuning import Tuning

_SETTINGS = (
    "synchronous_commit default_transaction_isolation fsync full_page_writes autovacuum "
    "statement_timeout lock_timeout "
    "idle_in_transaction_session_timeout idle_session_timeout transaction_timeout "
    "client_connection_check_interval tcp_keepalives_idle tcp_keepalives_interval "
    "tcp_keepalives_count tcp_user_timeout synchronous_standby_names"
)
_SERVER = (
    "backend_pid version role database superuser recovering read_only encrypted local used most "
    "role_most role_used database_most database_used"
)
_PINS = 20


async def examine(settings: Settings, env: Env, seconds: float, role: str) -> Examination:
    """Query and watch for ``seconds``. Raises ConfigError and WrongDsn; what the database refuses
    becomes part of the result."""
    found = Examination(settings, role)
    options = connect_options(settings, "doctor")
    try:
        limit = asyncio.timeout(seconds + Tuning.doctor_query_seconds)
        async with limit, _connected(options, settings.call_timeout) as one:
            await _Examiner(settings, env, options, one, found).run(seconds)
    except TimeoutError:
        found.error = errors.Unavailable("the database did not answer in time")
    except errors.LeaseworkError as error:
        found.error = error
    except (psycopg.Error, OSError) as error:
        found.error = translate(error, sent=False)
    return found


@asynccontextmanager
async def _connected(options: dict[str, Any], seconds: float) -> AsyncIterator[Link]:
    connection = await connect(options, seconds)
    connection.prepare_threshold = None
    try:
        await read_iso(connection)
        yield connection
    finally:
        with suppress(psycopg.Error, OSError):
            await connection.close()


@dataclass(eq=False)
class _Examiner:
    _settings: Settings
    _env: Env
    _options: dict[str, Any]
    _one: Link
    _found: Examination

    async def run(self, seconds: float) -> None:
        found = self._found
        row = (await self._ask("doctor/server", {}))[0]
        found.server = dict(zip(_SERVER.split(), row, strict=True))
        found.tcp = _tcp(self._one)
        wanted = list(_SETTINGS.split())
        known = {row[0]: row[1] for row in await self._ask("doctor/settings", {"names": wanted})}
        found.settings = {name: known.get(name) for name in wanted}
        await self._part("pooler", self._poolers)
        await self._part("listen", self._listen)
        if await self._schema():
            await self._part("timeline", self._tokens)
            await self._part("drift", self._drift)
            await self._part("tables", self._tables)
            await self._part("nodes", self._nodes)
        await self._watch(seconds)

    async def _ask(self, name: str, params: dict[str, Any]) -> list[Row]:
        text = statement(name, self._settings.schema)
        return await (await self._one.execute(text.encode(), params)).fetchall()

    async def _part(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        """Run one part of the examination. If it is refused, the others still run."""
        try:
            await look()
        except errors.ServerError as error:
            self._found.skipped[name] = " ".join(str(error).split())
        except psycopg.Error as error:
            if self._one.closed:
                raise
            self._found.skipped[name] = " ".join(str(translate(error, sent=False)).split())

    async def _poolers(self) -> None:
        """Is there a pooler, and does it lend connections per session or per transaction?"""
        if self._found.server["backend_pid"] == self._one.info.backend_pid:
            self._found.pooler = NEVER
            return
        self._found.pooler = SESSION
        async with _connected(self._options, self._settings.call_timeout) as two:
            mine: list[set[int]] = [set(), set()]
            for _ in range(4):
                for connection, pids in zip((self._one, two), mine, strict=True):
                    cursor = await connection.execute("select pg_backend_pid()")
                    pids.update(row[0] for row in await cursor.fetchall())
            if mine[0] & mine[1] or len(mine[0]) > 1 or len(mine[1]) > 1:
                self._found.pooler = TRANSACTION

    async def _listen(self) -> None:
        """Send a notification with a nonce to a second connection of ours."""
        if self._found.pooler == TRANSACTION:
            return  # LISTEN would stay on a server connection that other clients use
        nonce = self._env.new_id().hex
        channel = f"{self._settings.schema[:20]}_doctor_{nonce[-8:]}"
        async with _connected(self._options, self._settings.call_timeout) as two:
            await two.execute(f"listen {channel}".encode())
            began = self._env.boot_now()
            heard = asyncio.Event()

            def tell(text: str | None) -> None:
                if text == nonce:
                    heard.set()

            two.hear(tell)
            await self._one.execute("select pg_notify(%s, %s)", (channel, nonce))
            if await own_tasks.within(Tuning.doctor_listen_seconds, heard.wait()):
                self._found.listen_seconds = self._env.boot_now() - began
            await two.execute("unlisten *")

    async def _tokens(self) -> None:
        rows = await self._ask("doctor/tokens", {})
        self._found.tokens = Tokens(*rows[0]) if rows else None

    async def _schema(self) -> bool:
        """Which parts exist and what this login may do. Returns whether to look further."""
        found, schema = self._found, self._settings.schema
        rows = await self._ask("doctor/schema", {"schema": schema})
        if not rows or not rows[0][2]:
            found.schema_missing = migrate.missing()
            return False
        owner, usable, _ = rows[0]
        found.server["schema_owner"] = owner
        if not usable:
            found.schema_number = 0  # it exists, but its version is not readable
            found.denied = {role: [f"usage of the schema {schema}"] for role in ROLES}
            return False
        for role in ROLES:
            if role != ADMIN:
                names, privileges = zip(*rights(role), strict=True)
                params = {
                    "names": list(names), "privileges": list(privileges), "schema": schema,
                }  # fmt: skip
                denied = await self._ask("doctor/denied", params)
                found.denied[role] = [f"{privilege} on {name}" for name, privilege in denied]
        await self._part("schema", self._numbers)
        return found.schema_number is not None

    async def _numbers(self) -> None:
        text = f"select max(number), max(min_known) from {in_sql(self._settings.schema)}.migration"
        row = await (await self._one.execute(text.encode())).fetchone()
        if row and row[0] is not None:
            self._found.schema_number, self._found.schema_min_known = row
        else:
            self._found.schema_missing = migrate.missing(tables=True)

    async def _drift(self) -> None:
        self._found.differences = await migrate.verify(self._settings)

    async def _tables(self) -> None:
        pool = Pool(self._settings, "doctor", 1)
        reports = PgReports(pool)
        try:
            self._found.tables = await reports.tables()
            self._found.transactions = await reports.transactions(_PINS)
            self._found.nodes = await reports.nodes(1000)
        finally:
            await pool.close()

    async def _nodes(self) -> None:
        self._found.connections = dict(await self._ask("doctor/connections", {}))
        self._found.trouble = dict(await self._ask("doctor/trouble", {"now": None}))

    # -- over some time --------------------------------------------------------------------------
    async def _watch(self, seconds: float) -> None:
        """Watch both clocks and the renewals side by side."""
        renewals = _Renewals()
        looks: list[tuple[float, float, float, float]] = []
        end = self._env.boot_now() + seconds
        nodes = bool(self._found.nodes)
        while True:
            before, wall = self._env.boot_now(), self._env.wall_now().timestamp()
            server = float((await self._ask("doctor/clock", {"now": None}))[0][0])
            looks.append((before, self._env.boot_now(), wall, server))
            if nodes:
                for row in await self._ask("doctor/seen", {"now": None}):
                    renewals.saw(*row)
            if self._env.boot_now() >= end:
                break
            await asyncio.sleep(Tuning.doctor_look_seconds)
        self._found.clocks = compare(looks)
        self._found.gaps = renewals.gaps()


def compare(looks: list[tuple[float, float, float, float]]) -> Clocks:
    """``looks``: boot clock before and after, wall clock before, the server's clock; in seconds."""
    clocks = Clocks([after - before for before, after, _, _ in looks])
    clocks.watched = looks[-1][1] - looks[0][0]
    shortest = min(looks, key=lambda look: look[1] - look[0])
    trip = shortest[1] - shortest[0]
    clocks.offset = shortest[3] - (shortest[2] + trip / 2)
    clocks.offset_error = trip / 2
    # the server read its clock at some moment of the round trip
    ahead = [(server - after, server - before) for before, after, _, server in looks]
    for (low, high), (next_low, next_high) in pairwise(ahead):
        step = max(next_low - high, 0.0) or min(next_high - low, 0.0)
        if abs(step) > abs(clocks.jump):
            clocks.jump = step
    if len(looks) > 1 and clocks.watched > 0:
        first, last = ahead[0], ahead[-1]
        middle = (sum(last) - sum(first)) / 2
        clocks.rate = middle / clocks.watched
        clocks.rate_error = (first[1] - first[0] + last[1] - last[0]) / 2 / clocks.watched
    return clocks


class _Renewals:
    """The longest time between two renewals of each node."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}
        self._gaps: dict[str, Gaps] = {}

    def saw(self, worker: str, lease: float, seq: int, renewed_at: float, age: float) -> None:
        gap = self._gaps.setdefault(worker, Gaps(worker, lease, 0.0))
        known = self._last.get(worker)
        renewed_at = float(renewed_at)
        if known and seq > known[0]:
            gap.worst = max(gap.worst, (renewed_at - known[1]) / (seq - known[0]))
        gap.worst = max(gap.worst, age)
        self._last[worker] = (seq, renewed_at)

    def gaps(self) -> list[Gaps]:
        return list(self._gaps.values())


def _tcp(connection: Link) -> dict[str, int] | None:
    """The kernel's TCP settings at our end; None if this is no TCP connection."""
    twin = socket.socket(fileno=os.dup(connection.fileno()))
    try:
        if twin.family == getattr(socket, "AF_UNIX", None):
            return None
        level = socket.IPPROTO_TCP
        names = {
            "user_timeout_ms": "TCP_USER_TIMEOUT",
            "idle": "TCP_KEEPIDLE",
            "interval": "TCP_KEEPINTVL",
            "count": "TCP_KEEPCNT",
        }
        seen = {"keepalives": twin.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)}
        for label, name in names.items():
            if hasattr(socket, name):
                seen[label] = twin.getsockopt(level, getattr(socket, name))
        return seen
    finally:
        twin.close()
