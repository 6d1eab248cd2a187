"""The doctor: combines an examination, its findings and the current intervals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from leasework import errors
from leasework.config import Settings, wait_seconds
from leasework.env import Env
from leasework.pg.connection.pool import Pool
from leasework.pg.schema.examination import examine
from leasework.pg.stores.reports import PgReports
from leasework.ports.doctor import Examination
from leasework.watch.advice import recommended, worst_gap, worst_trip
from leasework.watch.checks import CHECKS, judge
from leasework.watch.finding import NOTE, WRONG, Finding
from leasework.watch.inspector import Inspector

Role = Literal["worker", "enqueue", "observer"]
"""What a login of the database is for."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of :meth:`App.diagnose`."""

    findings: list[Finding]
    """In the order of the checks."""
    examination: Examination
    settings: Settings
    figures: dict[str, Any] = field(default_factory=dict)
    """What was measured, by name."""

    @property
    def ok(self) -> bool:
        """Whether no finding is wrong."""
        return all(finding.level != WRONG for finding in self.findings)

    @property
    def intervals(self) -> dict[str, str]:
        """The intervals that follow from recover_within, as text for people."""
        times = self.settings.timings
        return {
            "recover_within": f"{times.recover_within:g} s",
            "lease": f"{times.lease:g} s, renewed each {times.renew:g} s",
            "a holder trusts itself for": f"{times.trust:.2f} s",
            "a candidate waits for": f"{wait_seconds(times.lease):.2f} s",
            "longest time without a leader": f"{times.failover:.2f} s",
            "time limit of a call": f"{times.call_timeout:g} s",
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "findings": [finding.as_json() for finding in self.findings],
            **self.figures,
        }


async def diagnose(
    settings: Settings, env: Env, seconds: float, role: Role, *, as_nodes: bool = False
) -> Diagnosis:
    """Examine for ``seconds``. ``role`` is what the login is for. ``as_nodes``: judge the
    recover_within of the nodes, where all have the same, and not our own. Raises ConfigError."""
    if role not in get_args(Role):
        do = errors.suggest(str(role), get_args(Role))
        raise errors.ConfigError("no such role", got=role, do=do)
    examination = await examine(settings, env, seconds, role)
    leases = {node.lease_seconds for node in examination.nodes}
    if as_nodes and len(leases) == 1:
        settings = replace(settings, recover_within=round(1.5 * leases.pop(), 3))
        examination.own = settings
    found = judge(examination)
    if examination.schema_number and "tables" not in examination.skipped:
        found += await _running(settings, env)
    return Diagnosis(found, examination, settings, _figures(examination, settings))


async def _running(settings: Settings, env: Env) -> list[Finding]:
    """Return the application's problems. What is not about the database is only a note here."""
    pool = Pool(settings, "doctor", 1)
    try:
        problems = await Inspector(PgReports(pool), env, settings).problems()
    except errors.LeaseworkError:
        return []  # the examination has reported the error
    finally:
        await pool.close()
    return [p if CHECKS[p.kind].doctor else replace(p, level=NOTE) for p in problems if not p.info]


def _figures(found: Examination, settings: Settings) -> dict[str, Any]:
    times, clocks = settings.timings, found.clocks
    advice = recommended(found, settings.recover_within)
    trips = sorted(clocks.round_trips)
    return {
        "intervals": {
            "recover_within": times.recover_within,
            "lease": times.lease,
            "renew": times.renew,
            "trust": times.trust,
            "wait": wait_seconds(times.lease),
            "failover": times.failover,
            "call_timeout": times.call_timeout,
            "grace": times.grace,
        },
        "recommended_recover_within": advice.seconds,
        "least_recover_within": advice.least,
        "round_trip_seconds": {
            "median": trips[len(trips) // 2] if trips else None,
            "most": worst_trip(found) if trips else None,
        },
        "renewal_gap_seconds": worst_gap(found),
        "clock": {
            "offset_seconds": clocks.offset,
            "offset_error_seconds": clocks.offset_error,
            "rate": clocks.rate,
            "rate_error": clocks.rate_error,
            "jump_seconds": clocks.jump,
            "watched_seconds": clocks.watched,
        },
        "pooler": found.pooler,
        "listen_seconds": found.listen_seconds,
        "server": found.server,
        "connections": found.connections,
        "settings": dict(found.settings),
        "may_not": found.denied,
    }
