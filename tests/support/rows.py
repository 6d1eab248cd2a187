"""Rows for people, of a healthy application. A test replaces those that it is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from leasework.store.rows import (
    DeathView,
    EventView,
    LeaderView,
    NodeView,
    ScheduleLag,
    TickView,
    TransactionView,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

NODE = NodeView(
    worker_id="web1:10:abcdef",
    id=UUID(int=1),
    app="shop",
    release="",
    version="1.0",
    executes=True,
    queues={"default": 100},
    tasks=["send"],
    started_at=NOW - timedelta(hours=1),
    heartbeat=NOW - timedelta(seconds=1),
    age_seconds=1.0,
    lease_seconds=10.0,
    info={"running": 1, "overdue": []},
    halted=False,
)
LEADER = LeaderView(
    name="shop",
    holder=NODE.worker_id,
    term=3,
    heartbeat=NODE.heartbeat,
    age_seconds=1.0,
    lease_seconds=10.0,
    acquired_at=NODE.started_at,
    node=NODE.id,
)
DEATH = DeathView(node=UUID(int=7), worker_id="web7:7:abcdef", app="shop", died_at=NOW, rescued=2)
SCHEDULE = ScheduleLag(
    app="shop",
    name="nightly",
    paused=False,
    late_seconds=0.0,
    ahead_seconds=0.0,
)
TICK = TickView(
    app="shop",
    schedule="nightly",
    fire_at=NOW - timedelta(hours=23),
    until=None,
    state="fired",
    job_id=UUID(int=4),
    term=3,
    decided_at=NOW - timedelta(hours=23),
    lateness_seconds=0.0,
    outcome="completed",
    ran_seconds=0.5,
)
EVENT = EventView(
    id=1, at=NOW, kind="node_started", level="info", worker_id=NODE.worker_id, fields={}
)
TRANSACTION = TransactionView(
    pid="77",
    what="transaction",
    role="ada",
    application="psql",
    client="local",
    state="idle in transaction",
    open_seconds=301.0,
    xmin_age=200_000,
    query="",
)
