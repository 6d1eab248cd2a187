"""The election of the application's own leader. All methods run in the guard's loop.

This process is always a candidate. Following costs no connection and no statement: the guard's
heartbeat reads the row, and the guard's next step makes the attempt. The leader's duties are single
fenced statements. None begins after :meth:`Guard.term` returns None, and a running one holds the
fence. So the process may follow again as soon as it has lost.
"""

from __future__ import annotations

from collections.abc import Callable

from leasework import errors
from leasework.lease import news
from leasework.lease.host import Host
from leasework.lease.named_lease import LeaseContext, NamedLease, Turn
from leasework.model.lease import Phase


class Election:
    """``stands`` returns whether this process may become the leader at this moment."""

    def __init__(
        self, name: str, context: LeaseContext, turn: Turn, host: Host, stands: Callable[[], bool]
    ) -> None:
        self.named = NamedLease(name, context, turn)
        self._context = context
        self._host = host
        self._stands = stands
        self._not_before = 0.0
        """No attempt before then, because the last one got no answer, or the fence was held."""

    def start_anew(self) -> None:
        self.named.start_anew()
        self._not_before = 0.0

    def next_attempt(self) -> float:
        """When to try next, by the boot clock. inf: never."""
        wanted_at = max(self.named.lease.may_act_at(), self._not_before)
        return wanted_at if self._stands() else float("inf")

    async def seek(self) -> bool:
        """Acquire the leadership if it is free. Return whether this process tried."""
        named, now = self.named, self._context.env.boot_now()
        seen = named.lease.wants(now)
        if seen is None or not self._stands() or now < self._not_before:
            return False
        if seen.node != named.lease.me:  # if the row names us, one attempt is enough
            self._not_before = now + 2 * self._context.timings.renew
        try:
            won = await named.acquire()
        except errors.Unavailable as error:  # no renewal, and nothing else waits for it
            if isinstance(error, errors.Conflict):
                self._not_before = self._context.env.boot_now() + self._context.timings.renew
            self._context.emit("renew_failed", error=str(error))
            return True
        self._not_before = 0.0
        if won:
            self._host.tell(news.Leadership(gained=True))
            if not self._stands():  # we were stopped meanwhile
                await self.resign("stopped")
        return True

    def settle(self) -> None:
        """Report a lost or expired leadership, and follow again."""
        lease = self.named.lease
        lease.expire(self._context.env.boot_now())
        if lease.phase is Phase.STEPPING_DOWN:
            self.named.report_lost()
            lease.stopped()
            self._host.tell(news.Leadership(gained=False))

    async def resign(self, why: str) -> None:
        if self.named.lease.phase is Phase.HOLDER:
            self.named.lease.step_down(why)
            self._host.tell(news.Leadership(gained=False))
            await self.named.resign()
