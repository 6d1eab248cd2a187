"""A process of the campaign that schedules and runs jobs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from leasework.errors import LeaseworkError
from leasework.node import Node
from leasework_lab.chaos.app import NAME, QUEUES, ChaosApp
from leasework_lab.chaos.beliefs import Beliefs, Sampler
from leasework_lab.chaos.history import Writer
from leasework_lab.chaos.tables import ChaosSession

_POLL_SECONDS = 0.02
_DUTY_SECONDS = 0.4
"""How long a duty pauses in its transaction, so that faults can hit it."""
_REST_SECONDS = 0.3
_EARLY = 0.25
_PATIENCE_SECONDS = 60.0


class _Events(logging.Handler):
    """Writes every event of leasework to the history."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event:
            fields: dict[str, Any] = getattr(record, "fields", {})
            self._writer.note("event", event=event, fields=fields)


async def serve(hard_exit: bool, writer: Writer, stop: asyncio.Event) -> None:
    """Run a node until ``stop`` is set."""
    chaos = ChaosApp(writer, grace=2.0)
    logger = logging.getLogger("leasework")
    logger.addHandler(_Events(writer))
    logger.setLevel(logging.INFO)
    beliefs = Beliefs(writer, chaos.app.env)
    node = await chaos.app.make_node(QUEUES, True, hard_exit)
    beliefs.node = node
    sampler = Sampler(node, writer, chaos.app.env)
    sampler.start()
    await node.start()
    writer.note("up")
    # a user's own duty is not drained: it continues while the node resigns and leaves
    duties = asyncio.create_task(Duties(chaos, node, writer).run())
    try:
        await stop.wait()
        writer.note("stopping")
    finally:
        await node.stop()
        duties.cancel()
        await asyncio.gather(duties, return_exceptions=True)
        sampler.stop()
        await chaos.app.close()
    writer.note("left")


class Duties:
    """Duties of a leader: transactions that must not commit after a later term began."""

    def __init__(self, chaos: ChaosApp, node: Node, writer: Writer) -> None:
        self._chaos = chaos
        self._node = node
        self._writer = writer
        self._env = chaos.app.env
        self._looked = 0
        self._number = 0

    async def run(self) -> None:
        try:
            while True:
                await self._one()
        except Exception as error:  # otherwise nobody would notice that the duties have ended
            self._writer.note("duties_broke", error=repr(error))
            raise

    async def _one(self) -> None:
        term = self._node.guard.term()
        if term is None:
            await asyncio.sleep(_POLL_SECONDS)
            return
        try:
            if term.token != self._looked:
                await self._look(term.token)
            await self._duty(term.token)
        except LeaseworkError as error:
            self._writer.note("duty_unknown", term=term.token, error=type(error).__name__)
        await asyncio.sleep(_REST_SECONDS * self._env.rng.random())

    async def _look(self, term: int) -> None:
        """The first action of a term: read what earlier terms have committed. Whatever else they
        commit, they commit after this acquisition."""
        async with self._chaos.sessions.one() as session:
            before = await session.duties_before(term)
        self._looked = term
        self._writer.note("looked_back", term=term, before=before)

    async def _duty(self, term: int) -> None:
        self._number += 1
        duty = f"{self._env.pid}-{self._number}"
        early = self._env.rng.random() < _EARLY
        fields = {"duty": duty, "term": term, "early": early}
        sessions = self._chaos.sessions
        async with sessions.one() as session, session.transaction(_PATIENCE_SECONDS):
            self._writer.note("duty_begins", **fields)
            stands = await self._work(session, duty, term, early)
            if not stands:
                session.undo()
        self._writer.note("duty_done" if stands else "duty_fenced", **fields)

    async def _work(self, session: ChaosSession, duty: str, term: int, early: bool) -> bool:
        """Early: hold the fence from the start, so that a takeover must wait. Late: check the fence
        at the end, when another process may already lead."""
        if early:
            if not await session.fenced(NAME, term):
                return False
            await session.duty(duty, term)
            await asyncio.sleep(_DUTY_SECONDS)
            return True
        await session.be_patient()
        await session.duty(duty, term)
        await asyncio.sleep(_DUTY_SECONDS)
        return await session.fenced(NAME, term)
