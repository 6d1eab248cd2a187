"""The faults: what they do to which process, how often, and for how long.

Every fault undoes itself, even if the run ends during it, and is recorded with its start and end.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from leasework.env import Env, Rng
from leasework.errors import Conflict
from leasework_lab.chaos.acts import Acts, Missed
from leasework_lab.chaos.database import Server
from leasework_lab.chaos.fleet import Fleet, Member
from leasework_lab.chaos.history import Fault
from leasework_lab.chaos.proxy import WriteLoss
from leasework_lab.chaos.watch import Watcher

PROFILES = ("process", "network", "database", "all", "none")
Menu = list[tuple[Callable[[], Awaitable[None]], float]]
"""Faults, and how often each one is drawn."""
_DUTY = b"chaos_duty (duty"
_TRAP_SECONDS = 3.0
_SETTLE_SECONDS = 0.5
_JOIN_SECONDS = 2.5
_SPARED = 0.85
"""The chance that no further process is hit while others are: some must remain to take over and to
enqueue jobs."""


@dataclass
class Faults:
    """Injects faults into a fleet and its database. ``lease``: the length of a lease, T."""

    fleet: Fleet
    server: Server | None
    watcher: Watcher
    env: Env
    rng: Rng
    lease: float
    aim: Sequence[str] = ()
    """Only these, by the names of their methods; empty: those of the profile."""
    _server_busy: bool = False

    def __post_init__(self) -> None:
        self.acts = Acts(self.env)

    @property
    def done(self) -> list[Fault]:
        return self.acts.done

    async def run(self, profile: str, seconds: float, every: float) -> None:
        """Inject a fault every ``every`` seconds on average, however long each one takes."""
        menu = self._menu(profile)
        tasks: set[asyncio.Task[None]] = set()
        end = self.env.boot_now() + seconds
        while menu and self.env.boot_now() < end:
            fault = self.rng.choices([m for m, _ in menu], [w for _, w in menu])[0]
            task = asyncio.ensure_future(self.acts.quietly(fault))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            pause = min(self.rng.expovariate(1 / every), 3 * every)
            await asyncio.sleep(min(pause, max(0.0, end - self.env.boot_now())))
        if not menu:
            await asyncio.sleep(seconds)
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._heal()
        if self.acts.errors:  # some faults failed: the run shows less than it claims
            raise self.acts.errors[0]

    def _heal(self) -> None:
        for member in self.fleet.members.values():
            member.link.heal()
            member.signal(signal.SIGCONT)
            if member.clock:
                member.clock.set(0.0)
        if self.server:
            self.server.resume()
            if self.server.clock:
                self.server.clock.set(0.0)

    def _menu(self, profile: str) -> Menu:
        if self.aim:
            return [(getattr(self, f"_{name}"), 1.0) for name in self.aim]
        process: Menu = [(self._pause, 4.0), (self._pause_leader, 4.5), (self._kill, 2.0)]
        process.append((self._restart, 1.5))
        if any(m.clock for m in self.fleet.members.values()):
            process.append((self._step_worker, 0.7))
        network: Menu = [
            (self._hole, 2.5),
            (self._hole_leader, 2.0),
            (self._lose_answers, 3.0),
            (self._delay, 1.5),
            (self._reset, 2.0),
            (self._half_open, 1.5),
            (self._restart, 1.5),
        ]
        database: Menu = [(self._break_half, 4.0), (self._restart, 1.2)]
        if self.server:
            database += [(self._crash, 1.2), (self._crash_backend, 0.8), (self._pause_all, 0.6)]
            if self.server.clock:
                database.append((self._step_database, 3.0))
        everything = process + network + [(fault, weight * 0.7) for fault, weight in database]
        menus = {"process": process, "network": network, "database": database, "all": everything}
        return menus.get(profile, [])

    # -- who -------------------------------------------------------------------------------------
    def _leader(self) -> Member | None:
        row = self.watcher.row
        return self.fleet.by_pid(row.pid) if row else None

    def _someone(self, *roles: str, leader: float = 0.5) -> Member | None:
        """The leader with that chance, else a process of these roles that no fault is hitting."""
        found, nodes = self._leader(), self.fleet.nodes
        hit = sum(m.busy or not self._stands(m) for m in nodes)
        most = len(nodes) // 2 if leader < 1 else len(nodes) - 1
        if hit >= max(1, most) and self.rng.random() < _SPARED:
            roles = tuple(role for role in roles if role != "node")
        elif found and not found.busy and self.rng.random() < leader:
            return found
        role = self.rng.choice(("node", "node", "producer"))
        free = [
            m
            for m in self.fleet.members.values()
            if m.role in roles and m.alive and not m.busy and not m.why
        ]
        wanted = [m for m in free if m.role == role] or free
        producers = [m for m in self.fleet.members.values() if m.role == "producer"]
        if any(m.busy for m in producers) and self.rng.random() < _SPARED:
            wanted = [m for m in wanted if m.role != "producer"]
        return self.rng.choice(wanted) if wanted else None

    def _stands(self, member: Member) -> bool:
        """Is it alive, and has it had time to join?"""
        started_at = member.record.started_at if member.record else self.env.boot_now()
        return member.alive and self.env.boot_now() - started_at > _JOIN_SECONDS

    # -- processes -------------------------------------------------------------------------------
    async def _pause_leader(self) -> None:
        await self._pause(leader=1.0)

    async def _pause(self, leader: float = 0.5) -> None:
        """Pause a process, half of the time the leader: at any point, or between a write and its
        answer."""
        member = self._someone("node", "producer", leader=leader)
        if member is None:
            return
        # after a long pause it has been declared dead
        long = member.role == "node" and self.rng.random() < 0.5
        seconds = self.lease * (self.rng.uniform(1.4, 2.0) if long else self.rng.uniform(0.5, 2.0))
        aimed = self.rng.random() < (0.8 if member.role == "producer" else 0.3)
        what, text = "a write on its way", b""
        if member is self._leader() and self.rng.random() < 0.85:
            seconds = self.lease * self.rng.uniform(1.5, 2.0)
            aimed, what, text = True, "a duty begun", _DUTY
        words = f"SIGSTOP {seconds:.1f} s" + (f", with {what}" if aimed else "")
        async with self.acts.acting("pause", member, words) as fault:
            pid = member.pid
            try:
                if not await self._stopped(member, text if aimed else None):
                    raise Missed
                fault.start = self.env.boot_now()
                await asyncio.sleep(seconds)
            finally:
                member.link.trap = None
                if member.alive and member.pid == pid:
                    member.signal(signal.SIGCONT)

    async def _stopped(self, member: Member, text: bytes | None) -> bool:
        """Stop it at once, or with ``text``, after its next write that contains it has been sent
        and before its answer. False if it was no longer running."""
        if text is None:
            return member.signal(signal.SIGSTOP)
        sprung = asyncio.Event()
        hit = False

        def stop() -> None:
            nonlocal hit
            hit = member.signal(signal.SIGSTOP)
            sprung.set()

        member.link.trap, member.link.trap_text = stop, text
        try:
            async with asyncio.timeout(_TRAP_SECONDS):
                await sprung.wait()
        except TimeoutError:
            stop()
        return hit

    async def _kill(self) -> None:
        """SIGKILL, with or without a death certificate from its parent."""
        member = self._someone("node", "producer", leader=0.4)
        if member is None or not member.process:
            return
        certify = self.rng.random() < 0.5
        async with self.acts.acting(
            "kill", member, "with a certificate" if certify else ""
        ) as fault:
            process = member.process
            if not member.signal(signal.SIGKILL):
                raise Missed
            member.why, member.certify = "killed", certify
            fault.end = self.env.boot_now()
            await process.wait()

    async def _restart_leader(self) -> None:
        await self._restart(leader=1.0)

    async def _restart(self, leader: float = 0.6) -> None:
        """A deployment: SIGTERM, and the next process takes its place."""
        member = self._someone("node", leader=leader)
        if member is None or not member.process:
            return
        async with self.acts.acting("restart", member, "SIGTERM"):
            process = member.process
            if not member.signal(signal.SIGTERM):
                raise Missed
            member.why = "stopped"
            try:
                async with asyncio.timeout(20):
                    await process.wait()
            except TimeoutError:
                member.why = "did not stop"
                member.signal(signal.SIGKILL)

    async def _step_worker(self) -> None:
        """Step the wall clock of one node for a while."""
        members = [m for m in self.fleet.nodes if m.clock and m.clock.offset == 0.0]
        if not members:
            return
        clock = members[0].clock
        assert clock
        step = self._a_step()
        now = self.env.boot_now()
        fault = Fault("clock", members[0].name, now, float("inf"), f"its clock {step:+.0f} s")
        self.done.append(fault)
        try:
            clock.set(step)
            await asyncio.sleep(self.rng.uniform(1, 6))
        finally:
            clock.set(0.0)
            fault.end = self.env.boot_now()

    def _a_step(self) -> float:
        return self.rng.choice((-1, 1)) * self.rng.choice((1.0, 3.0, 10.0, 20.0))

    # -- the network -----------------------------------------------------------------------------
    async def _hole_leader(self) -> None:
        await self._hole(leader=1.0)

    async def _hole(self, leader: float = 0.5) -> None:
        """Block one direction or both; later the blocked data arrives, or the connections are
        reset."""
        member = self._someone("node", "producer", leader=leader)
        if member is None:
            return
        requests, answers, words = self.rng.choice(
            ((True, True, "both ways"), (True, False, "requests"), (False, True, "answers"))
        )
        late = leader == 1.0 or self.rng.random() < 0.5
        # a leader that is cut off for less than its trust keeps leading
        shortest = 1.3 if leader == 1.0 else 0.7 if member is self._leader() else 0.2
        seconds = self.lease * self.rng.uniform(shortest, 1.8)
        words = f"{words} {seconds:.1f} s, then " + ("all arrives" if late else "reset")
        async with self.acts.acting("hole", member, words):
            try:
                member.link.hole(requests, answers)
                await asyncio.sleep(seconds)
            finally:
                if not late:
                    member.link.reset()
                member.link.heal()

    async def _lose_answers(self) -> None:
        """Lose the answers to three of ten writes, which are committed."""
        member = self._someone("producer", "node", leader=0.25)
        if member is None:
            return
        seconds = self.rng.uniform(3, 7)
        async with self.acts.acting("lost answers", member, f"{seconds:.1f} s") as fault:
            loss = WriteLoss(0.3, self.rng)
            try:
                member.link.losses.append(loss)
                await asyncio.sleep(seconds)
            finally:
                member.link.heal()
                fault.words += f", {loss.lost} lost"
            if not loss.lost:
                raise Missed

    async def _delay(self) -> None:
        member = self._someone("node", "producer")
        if member is None:
            return
        delay, seconds = self.rng.uniform(0.15, 0.5), self.rng.uniform(2, 7)
        words = f"{delay * 1000:.0f} ms each way, {seconds:.1f} s"
        async with self.acts.acting("delay", member, words):
            try:
                member.link.delay = delay
                await asyncio.sleep(seconds)
            finally:
                member.link.heal()

    async def _reset(self) -> None:
        """Reset all connections, once or several times."""
        member = self._someone("node", "producer")
        if member is None:
            return
        times = self.rng.choice((1, 1, 5, 15))
        async with self.acts.acting("reset", member) as fault:
            broken = 0
            for _ in range(times):
                broken += member.link.reset()
                await asyncio.sleep(0.1)
            fault.words = f"{broken} connections"
            if not broken:
                raise Missed

    async def _half_open(self) -> None:
        """Close one end without telling the other."""
        member = self._someone("node", "producer")
        if member is None:
            return
        seconds = self.rng.uniform(1, 8)
        of_server = self.rng.random() < 0.5
        words = "the server's end closed" if of_server else "the client's end closed"
        async with self.acts.acting("half-open", member, f"{words}, {seconds:.1f} s"):
            try:
                link = member.link
                if not (link.forget_server() if of_server else link.forget_client()):
                    raise Missed
                await asyncio.sleep(seconds)
            finally:
                member.link.heal()

    # -- the database ----------------------------------------------------------------------------
    async def _break_half(self) -> None:
        async with self.acts.acting("backends ended", None) as fault:
            broken = await self.watcher.break_half(self.rng.randint(0, 1))
            fault.words = f"{broken} backends"
            if not broken:
                raise Missed
            await asyncio.sleep(_SETTLE_SECONDS)

    async def _crash(self) -> None:
        assert self.server
        async with self._exclusive(), self.acts.acting("crash", None, "immediate restart"):
            await asyncio.shield(self.server.crash())

    async def _crash_backend(self) -> None:
        assert self.server
        async with self._exclusive():
            pids = await self.watcher.backends()
            async with self.acts.acting("crash", None, "SIGKILL of one backend"):
                if not (pids and self.server.kill_backend(self.rng.choice(pids))):
                    raise Missed
                await asyncio.sleep(1.0)

    async def _pause_all(self) -> None:
        assert self.server
        seconds = self.lease * self.rng.uniform(0.3, 1.5)
        words = f"all of PostgreSQL {seconds:.1f} s"
        async with self._exclusive(), self.acts.acting("frozen", None, words):
            try:
                self.server.pause()
                await asyncio.sleep(seconds)
            finally:
                self.server.resume()

    async def _step_database(self) -> None:
        assert self.server and self.server.clock
        clock = self.server.clock
        back = clock.offset != 0.0 and self.rng.random() < 0.6
        step = 0.0 if back else self._a_step()
        words = f"the database's clock at {step:+.0f} s"
        async with self.acts.acting("database clock", None, words):
            clock.set(step)

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """One fault at a time for the server itself; others are skipped meanwhile."""
        if self._server_busy:
            raise Conflict("another fault is hitting the server")
        self._server_busy = True
        try:
            yield
        finally:
            self._server_busy = False
