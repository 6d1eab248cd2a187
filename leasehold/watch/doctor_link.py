"""The doctor's checks of the connection: poolers, LISTEN, durability, timeouts, links, clocks."""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.config import (
    CLOCK_RATE_ERROR,
    FAR_OFFSET_SECONDS,
    JUMP_SECONDS,
    OFFSET_SECONDS,
    Settings,
)
from leasehold.ports.doctor import NEVER, TRANSACTION, Examination
from leasehold.watch.facts import duration
from leasehold.watch.finding import NOTE, OK, WRONG, Finding, alter


def pooler(found: Examination, settings: Settings) -> Iterator[Finding]:
    if found.pooler == NEVER:
        yield Finding("pooler", OK, "No pooler: connections go to PostgreSQL directly")
        return
    mode = "transaction" if found.pooler == TRANSACTION else "session"
    fast = settings.polling.blind
    yield Finding(
        "pooler",
        NOTE,
        f"The connection goes through a pooler in {mode} mode: nodes do not use LISTEN but poll "
        f"every {fast:g} s, and session advisory locks are refused; everything else works",
        "For wake-ups within milliseconds, give the workers a DSN that goes to PostgreSQL directly",
    )


def listen(found: Examination, settings: Settings) -> Iterator[Finding]:
    if found.pooler == TRANSACTION:
        return
    if "listen" in found.skipped or found.listen_seconds is None:
        why = found.skipped.get("listen", "a test notification did not arrive")
        yield Finding(
            "listen",
            WRONG,
            f"LISTEN does not work: {why}",
            "Connect to PostgreSQL directly, not through a pooler; or accept polling: "
            "LEASEHOLD_LISTEN=false",
        )
    else:
        took = found.listen_seconds * 1000
        yield Finding("listen", OK, f"A test notification arrived after {took:.1f} ms")
    if not settings.listen:
        yield Finding("listen", NOTE, "LISTEN is switched off in the settings: nodes poll", "")


def timeline(found: Examination) -> Iterator[Finding]:
    """Tokens grow with the server's timeline. Where a server hides it, a person must step in."""
    if not found.schema_number or "timeline" in found.skipped:
        return  # the finding on privileges says what is missing
    tokens = found.tokens
    if tokens is None:
        yield Finding(
            "tokens",
            WRONG,
            "The row that keeps tokens growing is missing: nothing can be claimed or led",
            "leasehold schema lift-tokens",
        )
        return
    if tokens.server is None:
        yield Finding(
            "timeline",
            NOTE,
            "The server does not report its timeline, as on some managed services. This matters "
            "only after a failover that loses commits: then tokens could repeat",
            "Only after such a failover: leasehold schema lift-tokens",
        )
    else:
        yield Finding("timeline", OK, f"The server reports its timeline: {tokens.server}")
    if tokens.claims is not None and tokens.next_claim <= tokens.claims:
        yield Finding(
            "tokens",
            WRONG,
            f"Tokens repeat: the next claim gets {tokens.next_claim}, and {tokens.claims} was "
            "given before. The data was moved here without its sequences",
            "leasehold schema lift-tokens",
        )
    else:
        yield Finding("tokens", OK, f"The next claim's token is {tokens.next_claim}")


def durability(found: Examination) -> Iterator[Finding]:
    commit = found.settings.get("synchronous_commit")
    role = found.server["role"]
    if commit not in ("on", "remote_apply"):
        own = (
            "leasehold refuses to start through a pooler with this setting"
            if found.pooler != NEVER
            else "leasehold overrides it for itself; jobs from your own transactions can be lost"
        )
        yield Finding(
            "synchronous_commit",
            WRONG,
            f"synchronous_commit is {commit}: acknowledged commits can be lost ({own})",
            alter(role, "synchronous_commit", "on"),
        )
    for name in ("fsync", "full_page_writes"):
        if found.settings.get(name) == "off":
            yield Finding(
                "synchronous_commit",
                WRONG,
                f"{name} is off: a crash of the machine can lose or break everything",
                f"In psql: alter system set {name} = on; select pg_reload_conf()",
            )
    if commit in ("on", "remote_apply") and found.settings.get("fsync") != "off":
        standby = "a synchronous standby" if found.settings.get("synchronous_standby_names") else ""
        where = f"; commits wait for {standby}" if standby else "; no synchronous standby"
        yield Finding("synchronous_commit", OK, f"synchronous_commit is {commit}{where}")


def isolation(found: Examination) -> Iterator[Finding]:
    """leasehold's own sessions set the isolation level; behind a pooler they cannot."""
    set_to = found.settings.get("default_transaction_isolation", "read committed")
    if found.pooler != NEVER and set_to not in ("read committed", "read uncommitted"):
        yield Finding(
            "isolation",
            WRONG,
            f"default_transaction_isolation is {set_to}: leasehold refuses to start through a "
            "pooler with it, because its statements must see what others commit",
            alter(found.server["role"], "default_transaction_isolation", "read committed")
            + "  -- or give leasehold a login of its own, if the application shares this one",
        )


def limits(found: Examination) -> Iterator[Finding]:
    """The server's timeouts. leasehold sets its own in its sessions, but not behind a pooler,
    where they would affect other clients."""
    role, get = found.server["role"], found.settings.get
    told = False
    if found.pooler != NEVER and get("idle_in_transaction_session_timeout") in ("0", None):
        told = True
        yield Finding(
            "timeouts",
            NOTE,
            "leasehold cannot set its own limits behind a pooler: when a host is cut off in the "
            "middle of a transaction, its locks stay until the pooler notices",
            "If that matters, give leasehold a login of its own (leasehold schema sql --roles) "
            "with idle_in_transaction_session_timeout = '2s'. Do not set it for a login that the "
            "application shares: it would end the application's transactions",
        )
    for name in ("statement_timeout", "transaction_timeout"):
        limit = _milliseconds(get(name))
        if found.pooler != NEVER and limit and limit < 2000:
            told = True
            yield Finding(
                "timeouts",
                WRONG,
                f"{name} is {limit:g} ms for this role: batches and migrations take longer",
                alter(role, name, "30s"),
            )
    if not told:
        yield Finding("timeouts", OK, "The server's timeouts do not affect leasehold's statements")


def link(found: Examination) -> Iterator[Finding]:
    tcp, get = found.tcp, found.settings.get
    if tcp is None:
        yield Finding("keepalives", OK, "The connection is a unix socket: no network can fail")
        return
    patience = tcp.get("user_timeout_ms", 0) / 1000
    alive = tcp.get("idle", 0) + tcp.get("interval", 0) * tcp.get("count", 0)
    if not tcp["keepalives"] or not patience or patience > 5 or alive > 10:
        yield Finding(
            "keepalives",
            WRONG,
            f"This host notices a dead link after {duration(patience or 900)}, with keepalives "
            f"{'after ' + duration(alive) if tcp['keepalives'] else 'off'}",
            "Remove tcp_user_timeout and keepalives… from the DSN: leasehold's own values are 2 s",
        )
    else:
        yield Finding("keepalives", OK, f"This host notices a dead link after {duration(patience)}")
    idle = int(get("tcp_keepalives_idle") or 0) or 7200
    if idle > 300 and found.pooler == NEVER:
        yield Finding(
            "keepalives",
            NOTE,
            f"The server first probes an idle client after {duration(idle)}; until then, "
            "connections of a lost host still count",
            "In psql: alter system set tcp_keepalives_idle = 60; "
            "alter system set tcp_keepalives_interval = 10; "
            "alter system set tcp_keepalives_count = 3; select pg_reload_conf()",
        )


def clock(found: Examination) -> Iterator[Finding]:
    clocks = found.clocks
    if not clocks.round_trips:
        return
    off, error = clocks.offset, clocks.offset_error
    words = (
        f"The server's clock is {abs(off):.3f} s {'ahead of' if off > 0 else 'behind'} this host's"
    )
    words += f" (± {error:.3f} s)"
    if abs(off) - error > OFFSET_SECONDS:
        far = abs(off) - error > FAR_OFFSET_SECONDS
        yield Finding(
            "clock",
            WRONG if far else NOTE,
            f"{words}. Schedules fire by the server's clock; leases do not depend on it",
            "Synchronise both hosts' clocks: timedatectl set-ntp true, or chronyc makestep",
        )
    else:
        yield Finding("clock", OK, words)
    if abs(clocks.jump) > JUMP_SECONDS:
        way = "forward" if clocks.jump > 0 else "back"
        yield Finding(
            "clock_step",
            WRONG,
            f"The server's clock stepped {way} by {abs(clocks.jump):.3f} s during the observation",
            "Let chrony slew instead of step (makestep only at the start), and look at the "
            "hypervisor's time synchronisation",
        )
    elif abs(clocks.rate) - clocks.rate_error > CLOCK_RATE_ERROR:
        yield Finding(
            "clock_rate",
            WRONG,
            f"The two clocks drift apart by {abs(clocks.rate):.2%} (± {clocks.rate_error:.2%}); "
            f"leases tolerate {CLOCK_RATE_ERROR:.1%}",
            "Fix the clock source of the host whose clock drifts: "
            "cat /sys/devices/system/clocksource/*/current_clocksource",
        )
    elif clocks.rate_error < CLOCK_RATE_ERROR:
        yield Finding("clock_rate", OK, f"The two clocks differ in rate by {abs(clocks.rate):.3%}")


def _milliseconds(value: str | None) -> float:
    return float(value) if value and value.lstrip("-").isdigit() else 0.0
