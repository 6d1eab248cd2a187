"""Which faults happen, and when: drawn from the seed before the run begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leasework.env import Rng
from leasework_lab.sim.failover import Standby
from leasework_lab.sim.link import Weather
from leasework_lab.sim.workload import NEW_IN

if TYPE_CHECKING:
    from leasework_lab.sim.cluster import Cluster
    from leasework_lab.sim.process import Process

BETWEEN_SECONDS = 1.6
"""Average seconds between two faults."""
Profile = str
PROFILES: tuple[Profile, ...] = (
    "calm", "deploy", "process", "network", "database", "everything", "failover",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    kind: str
    leader: bool
    """Hit the current leader, if there is one; else the host ``target``."""
    target: int
    seconds: float
    draw: float

    def __str__(self) -> str:
        who = "the leader" if self.leader else f"host {self.target}"
        return f"{self.kind} {self.seconds:.2f} s at {who}"


_KINDS: dict[Profile, tuple[str, ...]] = {
    "calm": (),
    "process": ("pause", "pause", "block", "crash", "crash", "stop", "aim"),
    "deploy": ("stop",),
    "network": (
        *("cut", "storm", "aim") * 3,
        *("stall", "stall", "handover", "brink", "late", "pause"),
    ),
    "database": ("down", "restart", "promote", "step", "step", "storm", "crash"),
}
# This profile drops the assumption that acknowledged commits survive (A5), so it stands alone.
_LOSSY = ("lose", "lose", "storm", "crash", "pause", "aim", "late")
_KINDS["everything"] = tuple(kind for kinds in _KINDS.values() for kind in kinds)
_KINDS["failover"] = _LOSSY


def profile_of(rng: Rng) -> Profile:
    return rng.choices(PROFILES, weights=(1, 1, 3, 3, 2, 3, 1))[0]


def script(rng: Rng, profile: Profile, hosts: int, until: float, lease: float) -> list[Fault]:
    """Faults between the first seconds and ``until``. Most last about as long as matters: the
    trust, the lease or the wait."""
    kinds = _KINDS[profile]
    faults: list[Fault] = []
    at = rng.uniform(2.0, 6.0)
    while kinds and at < until:
        near = rng.choice([0.1, 0.5, 0.8, 0.85, 1.0, 1.02, 1.5])
        seconds = lease * near * rng.uniform(0.9, 1.1)
        faults.append(
            Fault(
                at,
                rng.choice(kinds),
                rng.random() < 0.5,
                rng.randrange(hosts),
                seconds,
                rng.random(),
            )
        )
        at += rng.expovariate(1 / BETWEEN_SECONDS)
    return faults


def weather(rng: Rng, profile: Profile) -> Weather:
    """The conditions for all calls of a run."""
    if profile in ("calm", "deploy", "process"):
        return Weather(latency=rng.choice([0.001, 0.01]))
    return Weather(
        latency=rng.choice([0.001, 0.01, 0.1]),
        refused=rng.choice([0.0, 0.02]),
        request_lost=rng.choice([0.0, 0.02]),
        answer_lost=rng.choice([0.0, 0.02, 0.1]),
        slow=rng.choice([0.0, 0.01, 0.05]),
        wake_lost=rng.choice([0.0, 0.3, 1.0]),
        wake_doubled=rng.choice([0.0, 0.3]),
        wake_late=rng.choice([0.0, 0.3]),
    )


class Injector:
    """Applies faults to a cluster, and undoes them when their time is up."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._later = cluster.later
        self._over = False
        self.spared: list[Process] = []
        """Processes in a special sequence of events: other faults go elsewhere."""

    def apply(self, fault: Fault) -> None:
        cluster = self._cluster
        process = cluster.processes[fault.target]
        if fault.leader:
            process = next((p for p in cluster.processes if p.leads()), process)
        if process in self.spared:
            process = next((p for p in cluster.processes if p not in self.spared), process)
        if cluster.watch.trace:
            cluster.watch.trace.fault(f"{fault} ({process})")
        cluster.watch.counts["faults"] += 1
        cluster.watch.counts[f"fault {fault.kind}"] += 1
        act: Callable[[Process, Fault], None] = getattr(self, f"_{fault.kind}")
        act(process, fault)

    def _undo(self, seconds: float, act: Callable[[], None]) -> None:
        self._later(seconds, lambda: None if self._over else act())

    def end(self) -> None:
        """Stop all faults and repair everything at once."""
        self._over = True
        self.spared.clear()
        cluster = self._cluster
        cluster.aimed.clear()
        cluster.server.up = True
        cluster.server.calm_from = cluster.loop.time()
        # ahead of every time that was ever decided, so that nobody waits for the clock to catch up
        cluster.clock.step(max(0.0, cluster.furthest_step - cluster.clock.stepped))
        for link in cluster.links:
            link.cut, link.cut_line, link.stalled_until, link.held = "", "", 0.0, None
            link.weather = Weather()
        for process in cluster.processes:
            if process.paused:
                process.resume()
            if not process.alive:
                process.start(cluster.newest_release)
        if not any(process.plan.release >= NEW_IN for process in cluster.processes):
            self._deploy(cluster.processes[-1])

    def _deploy(self, process: Process) -> None:
        """Replace a process by a new release, because somebody must know the new task. The old one
        is killed, unless the profile has no such fault."""
        if self._cluster.profile == "deploy" and process.joined:
            process.stop(lambda: process.start(NEW_IN))
        elif self._cluster.profile == "deploy":  # it is stopping, and starts again unchanged
            self._later(0.5, lambda: self._deploy(process))
        else:
            process.crash()
            process.start(NEW_IN)

    # -- one method per kind ---------------------------------------------------------------------
    def _pause(self, process: Process, fault: Fault) -> None:
        if process.alive and not process.paused:
            process.pause()
            self._undo(fault.seconds, process.resume)

    def _block(self, process: Process, fault: Fault) -> None:
        if process.alive and not process.paused:
            process.pause(guard=False)
            self._undo(fault.seconds, process.resume)

    def _crash(self, process: Process, fault: Fault) -> None:
        if not process.alive:
            return
        first = process.crash()
        if fault.draw < 0.4:
            self._undo(fault.draw * 2, lambda: process.certify(first))
        self._undo(fault.seconds, lambda: None if process.alive else process.start())

    def _stop(self, process: Process, fault: Fault) -> None:
        """A deployment, usually of a new release."""
        cluster = self._cluster
        if fault.draw < 0.7:
            cluster.newest_release = NEW_IN
        release = cluster.newest_release if fault.draw < 0.8 else None

        def again() -> None:
            if not process.alive:
                process.start(release)

        process.stop(lambda: self._later(min(fault.seconds, 1.0), again))

    def _cut(self, process: Process, fault: Fault) -> None:
        link = process.link
        link.cut, link.cut_line = ["requests", "answers", "both"][int(fault.draw * 3)], ""

        def mend() -> None:
            link.cut = ""

        self._undo(fault.seconds, mend)

    def _storm(self, process: Process, fault: Fault) -> None:
        link, before = process.link, process.link.weather
        link.weather = Weather(
            latency=0.3 * fault.draw, request_lost=0.1, answer_lost=0.3, slow=0.2
        )

        def clear() -> None:
            link.weather = before

        self._undo(fault.seconds * 2, clear)

    def _stall(self, process: Process, fault: Fault) -> None:
        """Hold back what it sends, and deliver it all at once: first tries arrive late."""
        link = process.link
        link.stalled_until = self._cluster.loop.time() + fault.seconds * (0.2 + fault.draw)
        link.stalled_line = "work" if fault.draw < 0.4 else ""

    def _handover(self, process: Process, fault: Fault) -> None:
        """Delay its duties while it resigns: another process leads before they arrive."""
        link = process.link
        link.stalled_until = self._cluster.loop.time() + 2.5 * fault.draw
        link.stalled_line = "work"
        self._undo(0.5 * fault.draw, lambda: self._stop(process, fault))

    def _late(self, process: Process, fault: Fault) -> None:
        """Delay one statement until its caller has given up, so that it arrives after its
        repetition: the socket was closed, but the server still reads what was sent."""
        name = ["fire", "fire", "claim", "ack"][int(fault.draw * 4)]
        patience = self._cluster.settings.call_timeout
        process.link.held = name, patience + 0.5 + 3 * (fault.draw * 4 % 1)

    def _brink(self, process: Process, fault: Fault) -> None:
        """Make a follower renew at the last moment, unseen by the leader."""
        there = [p for p in self._cluster.processes if p.alive and not p.paused and not p.leads()]
        if there:
            self._cluster.brink = process if process in there else there[0], fault.draw

    def renewed(self, process: Process, draw: float) -> None:
        """A process on the brink was renewed. Hold back its guard's next request for nearly its
        trust, and hide the answers from the leader's guard then. Other connections work."""
        cluster = self._cluster
        timings = cluster.settings.timings
        leader = next((p for p in cluster.processes if p.leads() and p is not process), None)
        if leader is None or self._over:
            return
        last_moment = timings.trust - 0.6 * draw
        process.link.stalled_until = cluster.loop.time() + last_moment
        process.link.stalled_line = "guard"
        self.spared = [process, leader]
        before = process.link.weather, leader.link.weather
        process.link.weather = leader.link.weather = Weather(latency=0.005)
        link = leader.link

        def deafen() -> None:
            link.cut, link.cut_line = "answers", "guard"

        def mend() -> None:
            link.cut = link.cut_line = ""
            process.link.weather, link.weather = before
            self.spared.clear()

        self._undo(last_moment - 0.1, deafen)
        self._undo(last_moment + 2 * timings.renew, mend)

    def _restart(self, process: Process, fault: Fault) -> None:
        """Crash the server: open transactions end, and requests in progress are lost."""
        cluster = self._cluster
        cluster.server.end_transactions()
        cluster.db.crash()
        self._down(process, replace(fault, seconds=0.2 + fault.draw))

    def _down(self, process: Process, fault: Fault) -> None:
        server = self._cluster.server
        server.up = False

        def back() -> None:
            server.up = True

        self._undo(min(fault.seconds, 5.0), back)

    def _promote(self, process: Process, fault: Fault) -> None:
        self._cluster.server.end_transactions()
        self._cluster.db.promote()
        self._down(process, fault)

    def _lose(self, process: Process, fault: Fault) -> None:
        """Let a standby that lags a little take over: the commits since then are lost."""
        cluster = self._cluster
        standby = Standby(cluster.db, cluster.watch)

        def take_over() -> None:
            cluster.server.end_transactions()
            lost = standby.take_over()
            cluster.work.forget(lost)
            cluster.server.began_at = cluster.loop.time()
            self._down(process, fault)

        self._undo(fault.draw, take_over)

    def _aim(self, process: Process, fault: Fault) -> None:
        self._cluster.aimed.append(fault)

    def _step(self, process: Process, fault: Fault) -> None:
        self._cluster.step_clock((fault.draw - 0.5) * 60)


def strike(
    process: Process, fault: Fault, later: Callable[[float, Callable[[], None]], None]
) -> None:
    """Pause a process while an answer is on its way to it; when it resumes, it is cut off."""
    if process.paused:
        return
    process.pause()
    process.link.cut, process.link.cut_line = "requests", ""

    def mend() -> None:
        process.link.cut = ""

    later(fault.seconds, process.resume)
    later(fault.seconds + 4.0, mend)
