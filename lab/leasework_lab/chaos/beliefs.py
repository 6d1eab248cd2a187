"""Records what a process believes about its leases: each belief with the moment when it ends.

It observes the state machine of model/lease.py from outside and does not change it.
"""

from __future__ import annotations

import threading
from typing import Any

from leasework.env import Env
from leasework.model.lease import Lease
from leasework.node import Node
from leasework_lab.chaos.history import Writer

_SAMPLE_SECONDS = 0.05
_FLUSH_SECONDS = 1.0


class Beliefs:
    """Once created, it records each acquisition, renewal and end of a belief in this process. Set
    ``node`` before the node starts."""

    def __init__(self, writer: Writer, env: Env) -> None:
        self.node: Node | None = None
        self._writer = writer
        self._env = env
        self._watch()

    def _note(self, kind: str, lease: Lease, token: int | None, **fields: Any) -> None:
        of = "node" if self.node and self.node.guard.membership.lease is lease else "leader"
        self._writer.note(kind, of=of, me=lease.me, token=token, **fields)

    def _watch(self) -> None:
        acquired, renewed, down = Lease.acquired, Lease.renewed, Lease._down
        note, env = self._note, self._env

        def on_acquired(self: Lease, token: int, sent_at: float, received_at: float) -> bool:
            gained = acquired(self, token, sent_at, received_at)
            note("gained" if gained else "too_late", self, token, until=self.deadline)
            return gained

        def on_renewed(self: Lease, token: int, sent_at: float, received_at: float) -> None:
            before = self.deadline
            renewed(self, token, sent_at, received_at)
            if self.deadline != before:
                note("renewed", self, token, until=self.deadline)

        def on_down(self: Lease, why: str) -> None:
            # an expired belief ended at its deadline, any other ends now
            ended_at = min(self.deadline, env.boot_now())
            token = self.token
            down(self, why)
            note("down", self, token, until=ended_at, why=why)

        changed: dict[str, Any] = {"acquired": on_acquired, "renewed": on_renewed, "_down": on_down}
        for name, method in changed.items():
            setattr(Lease, name, method)


class Sampler:
    """Calls ``term()`` all the time, as a duty would: whatever the records say, this is what the
    process would have acted on. Writes one line for each stretch of the same answer."""

    def __init__(self, node: Node, writer: Writer, env: Env) -> None:
        self._node = node
        self._writer = writer
        self._env = env
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()

    def _run(self) -> None:
        token: int | None = None
        since = last = flushed = 0.0
        while not self._end.wait(_SAMPLE_SECONDS):
            before = self._env.boot_now()
            term = self._node.guard.term()
            now = term.token if term else None
            if now != token:
                self._flush(token, since, last)
                token, since, flushed = now, before, before
            elif before - flushed > _FLUSH_SECONDS:
                self._flush(token, since, before)
                since = flushed = before
            last = before
        self._flush(token, since, last)

    def _flush(self, token: int | None, since: float, until: float) -> None:
        if token is not None and until > since:
            self._writer.note("believed", token=token, since=since, until=until)
