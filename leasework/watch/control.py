"""Live control of limits, queues and tasks. What a person changes holds until it is reset, whatever
the code says. Each act is an event with the person and the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from leasework import errors
from leasework.config import Limits, check_text
from leasework.model.limits import Rate, key_text
from leasework.model.moments import is_number
from leasework.store.limits import LimitKeyView, LimitView, PauseView
from leasework.store.operation import Now
from leasework.store.reports import Reports
from leasework.store.store import Store
from leasework.tuning import Tuning
from leasework.watch.facts import stale


@dataclass(eq=False)
class Control:
    """Acts for an :class:`Operator`."""

    _store: Store
    _reports: Reports
    _record: Callable[..., Awaitable[None]]
    """``record(act, on, count, reason)`` writes the event."""
    _now: Callable[[], Now]
    _by: Callable[[str], str]
    """The person, and the reason."""


class LimitControl(Control):
    """``operator.limits``"""

    async def all(self) -> list[LimitView]:
        """All limits, with how many jobs run and wait."""
        return await self._reports.limits(self._now())

    async def keys(self, name: str, limit: int = 50) -> list[LimitKeyView]:
        """The keys of a limit: those that a person changed, and the busiest. Raises ConfigError."""
        await self._known(name)
        return await self._reports.limit_keys(name, limit)

    async def set(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        key: object = None,
        reason: str = "",
    ) -> None:
        """Change a limit, or the concurrency of one key, until :meth:`reset`. The next claim
        obeys. Raises ConfigError."""
        if concurrency is None and rate is None:
            raise errors.ConfigError("nothing to set", do="Give concurrency=5, or rate=Rate(…)")
        if concurrency is not None and not is_number(concurrency, 0, 1e6, whole=True):
            raise errors.ConfigError("concurrency must be a whole number from 0", got=concurrency)
        if rate is not None and key is not None:
            raise errors.ConfigError(
                "one key cannot have a rate of its own", do="Leave the key out, or the rate"
            )
        new = [] if concurrency is None else [f"concurrency {concurrency}"]
        new += [f"rate {rate.count:g} per {rate.per:g} s, burst {rate.burst:g}"] if rate else []
        await self._change(
            name, key, f"set {', '.join(new)}", reason, concurrency=concurrency, rate=rate
        )

    async def reset(self, name: str, *, key: object = None, reason: str = "") -> None:
        """Return to what the code says, and resume: a key, or the limit with all its keys. Raises
        ConfigError."""
        await self._change(name, key, "reset", reason, reset=True)

    async def pause(self, name: str, *, key: object = None, reason: str = "") -> None:
        """Start no job of a limit, or of one key. Raises ConfigError."""
        await self._change(name, key, "pause", reason, paused=True)

    async def resume(self, name: str, *, key: object = None, reason: str = "") -> None:
        """Start its jobs again. Raises ConfigError."""
        await self._change(name, key, "resume", reason, paused=False)

    async def _change(
        self, name: str, key: object, act: str, reason: str, rate: Rate | None = None, **given: Any
    ) -> None:
        wanted = {"concurrency": None, "paused": None, "reset": False, **given}
        text = key_text("a key", key)
        found = await self._store.set_limit(
            name,
            text,
            wanted["concurrency"],
            rate.per_second if rate else None,
            rate.burst if rate else None,
            wanted["paused"],
            wanted["reset"],
            self._now(),
        )
        if found is None:
            await self._known(name, defined=True)
        of_key = "" if text is None else f", key {text}"
        await self._record(act, f"limit {name}{of_key}", 1, reason)

    async def _known(self, name: str, defined: bool = False) -> None:
        names = [limit.name for limit in await self.all() if limit.defined or not defined]
        if name not in names:
            do = errors.suggest(name, names) if names else "leasework limits lists them"
            raise errors.ConfigError("no such limit", got=name, do=do)


class PauseControl(Control):
    """``operator.queues`` and ``operator.tasks``"""

    kind = "task"

    async def paused(self) -> list[PauseView]:
        """The paused queues and tasks."""
        return await self._reports.pauses()

    async def pause(self, name: str, *, reason: str = "") -> bool:
        """Start no job of it; those that run continue. Workers obey with their next renewal, which
        comes at once. Return False if it was paused already. Raises ConfigError."""
        return await self._pause(name, True, reason)

    async def resume(self, name: str, *, reason: str = "") -> bool:
        """Start its jobs again. Return False if it was not paused. Raises ConfigError."""
        return await self._pause(name, False, reason)

    async def _pause(self, name: str, paused: bool, reason: str) -> bool:
        await self._named(name)
        by = self._by(reason)
        changed = await self._store.pause(self.kind, name, paused, by, self._now())
        if changed:
            await self._record("pause" if paused else "resume", f"{self.kind} {name}", 1, reason)
        return changed

    async def _named(self, name: str) -> None:
        check_text(f"a {self.kind}'s name", name, Limits.text_chars)
        if not await self._reports.is_named(self.kind, name):
            queues, tasks = await self._reports.names()
            raise errors.ConfigError(
                f"no job, worker or definition names this {self.kind}",
                got=name,
                do=errors.suggest(name, queues if self.kind == "queue" else tasks),
            )


class QueueControl(PauseControl):
    """``operator.queues``"""

    kind = "queue"

    async def all(self) -> list[dict[str, Any]]:
        """Every queue with jobs, a worker or a pause: how many jobs are available, run, or wait for
        limits, and for how long the first one that waits has been due."""
        now = self._now()
        rows = {row.queue: row for row in await self._reports.queues(now)}
        limited = {row.queue: row for row in await self._reports.limit_waits(now)}
        paused = {row.name for row in await self._reports.pauses(now) if row.kind == "queue"}
        nodes = await self._reports.nodes(Tuning.shown_nodes)
        worked = {queue for node in nodes if not stale(node) for queue in node.queues}
        found = []
        for name in sorted({*rows, *limited, *paused, *worked}):
            row, waits = rows.get(name), limited.get(name)
            ages = [each.oldest_seconds for each in (row, waits) if each]
            found.append(
                {
                    "queue": name,
                    "paused": name in paused,
                    "available": row.ready - row.running if row else 0,
                    "running": row.running if row else 0,
                    "capped": row.capped if row else False,
                    "limited": waits.waiting if waits else 0,
                    "oldest_seconds": max((age for age in ages if age is not None), default=None),
                }
            )
        return found

    async def set_weight(
        self, name: str, tenant: str, weight: float | None, *, reason: str = ""
    ) -> None:
        """Change a tenant's share of a fair queue; None: what the code says. Raises ConfigError."""
        await self._named(name)
        if weight is not None and not is_number(weight, 0, 1000):
            raise errors.ConfigError("a weight must be from 0 to 1000", got=weight)
        await self._store.set_weight(name, tenant, weight)
        act = "reset the weight" if weight is None else f"set the weight to {weight:g}"
        await self._record(act, f"tenant {tenant} of queue {name}", 1, reason)
