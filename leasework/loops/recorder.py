"""Records events: a log line at once, a row with the next batch."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Any

from leasework import telemetry
from leasework.config import Limits
from leasework.env import Env
from leasework.errors import Unavailable
from leasework.loops.service import BatchSize, Service
from leasework.store.nodes import NodeIdentity
from leasework.store.store import Store
from leasework.tuning import Tuning

_ROW_BYTES = 200
"""Bytes of an event without its texts."""

Entry = tuple[telemetry.Event, str, str | None]


def as_row(
    event: telemetry.Event, worker_id: str | None, node: str | None = None, age: float = 0.0
) -> dict[str, Any]:
    """The event as ``record`` takes it. ``age``: in seconds."""
    row = {"kind": event.kind, "level": event.level, "fields": event.fields}
    return {**row, "worker_id": worker_id, "node": node, "age": age}


class Recorder(Service):
    """Writes events. ``emit`` may be called from any thread; the loop's thread writes the rows.
    During a long outage, the oldest unwritten events get no row, but their log lines were
    written."""

    name = "recorder"

    def __init__(self, env: Env, store: Store) -> None:
        self._env = env
        self._store = store
        self._buffer: deque[Entry] = deque(maxlen=Tuning.event_buffer)
        self._bytes = BatchSize(Limits.batch_bytes)
        self.identity: NodeIdentity | None = None
        """The node's identity, which the node sets again after each self-fencing."""
        self._rests = False

    def emit(self, kind: str, **fields: Any) -> None:
        event = telemetry.make_event(kind, fields, self._env.boot_now())
        me = self.identity  # one step: another thread may set it
        worker_id = me.worker_id if me else f"{self._env.host}:{self._env.pid}:-"
        telemetry.log(event, worker_id)
        if event.stored:
            self._buffer.append((event, worker_id, str(me.id) if me else None))
            if self._rests:
                self._rests = False
                self.wake()

    async def tick(self, now: datetime | None) -> float:
        self._rests = True  # set first: an event that arrives later wakes us
        if not self._buffer:
            return Tuning.event_rest_seconds
        self._rests = False
        batch, size = self._batch()
        boot_now = self._env.boot_now()
        rows = [
            as_row(event, worker_id, node, max(0.0, boot_now - event.boot_at))
            for event, worker_id, node in batch
        ]
        try:
            await self._store.record(rows, now)
        except Unavailable as error:
            if error.sent:
                self._bytes.unanswered(size)
            raise
        self._bytes.answered(size, self._env.boot_now() - boot_now)
        for item in batch:
            # a full buffer may have dropped it in the meantime
            if self._buffer and self._buffer[0] is item:
                self._buffer.popleft()
        return 0.0 if self._buffer else Tuning.event_gather_seconds

    def _batch(self) -> tuple[list[Entry], int]:
        """The oldest events, and their approximate size in bytes."""
        batch: list[Entry] = []
        size = 0
        for item in list(self._buffer)[: Tuning.event_rows]:
            texts = [text for text in item[0].fields.values() if isinstance(text, str)]
            more = _ROW_BYTES + sum(map(len, texts))
            if batch and size + more > self._bytes.now:
                break
            batch.append(item)
            size += more
        return batch, size
