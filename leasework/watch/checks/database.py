"""Checks of what the application stands on: the server, the connection to it, clocks and settings.

They judge an examination (pg/schema/examination.py), which only the doctor makes.
"""

from __future__ import annotations

from collections.abc import Iterator

from leasework.config import (
    CLOCK_RATE_ERROR,
    FAR_OFFSET_SECONDS,
    FULL_SHARE,
    JUMP_SECONDS,
    OFFSET_SECONDS,
)
from leasework.errors import READ_ONLY, WRITE_AGAIN, shorten
from leasework.model.moments import duration
from leasework.ports.doctor import NEVER, TRANSACTION, Examination
from leasework.watch.advice import recommended, worst_gap, worst_trip
from leasework.watch.checks.registry import Said, examined, fine, listed
from leasework.watch.facts import bloated
from leasework.watch.finding import NOTE, WRONG, quoted

_READ_COMMITTED = ("read committed", "read uncommitted")
_LIFT = "leasework schema lift-tokens"
_PLAIN = (
    "The connection is not encrypted: others on the network can read password hashes, arguments "
    "and results"
)


# -- who and where ---------------------------------------------------------------------------------
@examined(
    "The server is too old, a replica, or read-only.",
    "Give the primary's address, or add target_session_attrs=read-write to the DSN",
)
def _server(found: Examination) -> Iterator[str | Said]:
    server = found.server
    version = server["version"]
    name = f"PostgreSQL {version // 10000}.{version % 10000}"
    if version < 150000:
        yield Said(f"{name} is too old", do="Upgrade the server to 15 or newer")
    elif server["recovering"]:
        yield f"{name} is a replica: nothing can be claimed, led or enqueued there"
    elif server["read_only"]:
        yield Said(READ_ONLY[0].upper() + READ_ONLY[1:], do=WRITE_AGAIN)
    else:
        yield fine(f"{name}, database {server['database']!r} as {server['role']!r}")


@examined(f"{_PLAIN}.", "Add sslmode=verify-full (and sslrootcert=…) to the DSN", level=NOTE)
def _encryption(found: Examination) -> Iterator[str | Said]:
    if not (found.server["encrypted"] or found.server["local"]):
        yield _PLAIN


@examined(
    "The login lacks a privilege that its role needs, or (a note) it is a superuser.",
    "leasework schema sql --roles | psql; then: grant {group} to {login}",
)
def _privileges(found: Examination) -> Iterator[str | Said]:
    login, role = found.server["role"], found.role
    group, denied = f"{found.own.schema}_{role}", found.denied.get(role, [])
    if found.server["superuser"]:
        yield Said(
            f"{login!r} is a superuser: whoever gets hold of this DSN owns the server",
            level=NOTE,
            do="leasework schema sql --roles | psql; then give the application a login that is a "
            f"member of {group}",
        )
    elif denied:
        yield Said(
            f"{login!r} lacks what a {role} needs: {listed(denied)}",
            {"group": group, "login": quoted(login)},
        )
    elif role in found.denied:
        may = [name for name, lacks in found.denied.items() if not lacks]
        yield fine(f"{login!r} has the privileges of: {', '.join(may)}")


@examined(
    "The schema is missing, or differs from a new one.",
    "leasework schema verify lists every difference. Undo manual changes by hand, and run "
    "leasework schema apply for missing migrations",
)
def _schema(found: Examination) -> Iterator[str | Said]:
    if error := found.schema_missing:
        yield Said(error.what[0].upper() + error.what[1:], do=error.do)
    elif "drift" in found.skipped:
        yield Said(
            f"The schema was not compared with a fresh one: {found.skipped['drift']}",
            level=NOTE,
            do="leasework schema verify, as a login that may create temporary tables",
        )
    elif found.differences:
        first = "; ".join(shorten(line, 160).strip("'") for line in found.differences[:2])
        yield f"The schema differs from a fresh one in {len(found.differences)} places: {first}"
    elif found.schema_number:
        yield fine("The schema is the one that this version creates")


# -- the connection --------------------------------------------------------------------------------
@examined(
    "The connection goes through a pooler: nodes poll, and session advisory locks are refused.",
    "For wake-ups within milliseconds, give the workers a DSN that goes to PostgreSQL directly",
    level=NOTE,
)
def _pooler(found: Examination) -> Iterator[str | Said]:
    if found.pooler == NEVER:
        yield fine("No pooler: connections go to PostgreSQL directly")
        return
    mode = "transaction" if found.pooler == TRANSACTION else "session"
    yield (
        f"The connection goes through a pooler in {mode} mode: nodes do not use LISTEN but poll "
        f"every {found.own.polling.blind:g} s, and session advisory locks are refused; everything "
        "else works"
    )


@examined(
    "A notification that the doctor sends to itself does not arrive.",
    "Connect to PostgreSQL directly, not through a pooler; or accept polling: "
    "LEASEWORK_LISTEN=false",
)
def _listen(found: Examination) -> Iterator[str | Said]:
    if found.pooler == TRANSACTION:
        return
    if "listen" in found.skipped or found.listen_seconds is None:
        why = found.skipped.get("listen", "a test notification did not arrive")
        yield f"LISTEN does not work: {why}"
    else:
        yield fine(f"A test notification arrived after {found.listen_seconds * 1000:.1f} ms")
    if not found.own.listen:
        yield Said("LISTEN is switched off in the settings: nodes poll", level=NOTE, do="")


@examined(
    "The server does not report its timeline, as on some managed services. Where a server hides "
    "it, a person must step in after a failover that loses commits.",
    f"Only after such a failover: {_LIFT}",
    level=NOTE,
)
def _timeline(found: Examination) -> Iterator[str | Said]:
    if tokens := found.tokens:
        if tokens.server is None:
            yield (
                "The server does not report its timeline, as on some managed services. This "
                "matters only after a failover that loses commits: then tokens could repeat"
            )
        else:
            yield fine(f"The server reports its timeline: {tokens.server}")


@examined("Tokens or ids would repeat, because the data came without its sequences.", _LIFT)
def _tokens(found: Examination) -> Iterator[str | Said]:
    if not found.schema_number or "timeline" in found.skipped:
        return  # the finding on privileges says what is missing
    tokens = found.tokens
    if tokens is None:
        yield "The row that keeps tokens growing is missing: nothing can be claimed or led"
    elif tokens.claims is not None and tokens.next_claim <= tokens.claims:
        yield (
            f"Tokens repeat: the next claim gets {tokens.next_claim}, and {tokens.claims} was "
            "given before. The data was moved here without its sequences"
        )
    elif tokens.behind:
        yield "Sequences are behind their rows. The data was moved here without its sequences"
    else:
        yield fine(f"The next claim's token is {tokens.next_claim}")


@examined(
    "Acknowledged commits can be lost, because of this setting, fsync or full_page_writes.",
    "In psql: alter role {role} set synchronous_commit = 'on'",
)
def _synchronous_commit(found: Examination) -> Iterator[str | Said]:
    commit, get = found.settings.get("synchronous_commit"), found.settings.get
    strong = commit in ("on", "remote_apply")
    if not strong:
        own = (
            "leasework refuses to start through a pooler with this setting"
            if found.pooler != NEVER
            else "leasework overrides it for itself; jobs from your own transactions can be lost"
        )
        yield Said(
            f"synchronous_commit is {commit}: acknowledged commits can be lost ({own})",
            {"role": quoted(found.server["role"])},
        )
    for name in ("fsync", "full_page_writes"):
        if get(name) == "off":
            yield Said(
                f"{name} is off: a crash of the machine can lose or break everything",
                do=f"In psql: alter system set {name} = on; select pg_reload_conf()",
            )
    if strong and get("fsync") != "off":
        waits = get("synchronous_standby_names")
        where = "commits wait for a synchronous standby" if waits else "no synchronous standby"
        yield fine(f"synchronous_commit is {commit}; {where}")


@examined(
    "Behind a pooler, where leasework's sessions cannot set it, the role's default isolation level "
    "is not read committed.",
    "In psql: alter role {role} set default_transaction_isolation = 'read committed'  "
    "-- or give leasework a login of its own, if the application shares this one",
)
def _isolation(found: Examination) -> Iterator[str | Said]:
    set_to = found.settings.get("default_transaction_isolation", "read committed")
    if found.pooler != NEVER and set_to not in _READ_COMMITTED:
        yield Said(
            f"default_transaction_isolation is {set_to}: leasework refuses to start through a "
            "pooler with it, because its statements must see what others commit",
            {"role": quoted(found.server["role"])},
        )


@examined(
    "Behind a pooler, where leasework cannot set its own, the role's timeouts end leasework's "
    "statements, or (a note) the locks of a host that is cut off stay.",
    "In psql: alter role {role} set {name} = '30s'",
)
def _timeouts(found: Examination) -> Iterator[str | Said]:
    role, told = quoted(found.server["role"]), False
    pooled, get = found.pooler != NEVER, found.settings.get
    if pooled and get("idle_in_transaction_session_timeout") in ("0", None):
        told = True
        yield Said(
            "leasework cannot set its own limits behind a pooler: when a host is cut off in the "
            "middle of a transaction, its locks stay until the pooler notices",
            level=NOTE,
            do="If that matters, give leasework a login of its own (leasework schema sql --roles) "
            "with idle_in_transaction_session_timeout = '2s'. Do not set it for a login that the "
            "application shares: it would end the application's transactions",
        )
    for name in ("statement_timeout", "transaction_timeout"):
        value = get(name) or ""
        limit = float(value) if value.lstrip("-").isdigit() else 0.0
        if pooled and limit and limit < 2000:
            told = True
            yield Said(
                f"{name} is {limit:g} ms for this role: batches and migrations take longer",
                {"role": role, "name": name},
            )
    if not told:
        yield fine("The server's timeouts do not affect leasework's statements")


@examined(
    "This host would notice a dead connection late, or (a note) the server would.",
    "Remove tcp_user_timeout and keepalives… from the DSN: leasework's own values are 2 s",
)
def _keepalives(found: Examination) -> Iterator[str | Said]:
    tcp = found.tcp
    if tcp is None:
        yield fine("The connection is a unix socket: no network can fail")
        return
    patience = tcp.get("user_timeout_ms", 0) / 1000
    alive = tcp.get("idle", 0) + tcp.get("interval", 0) * tcp.get("count", 0)
    if not tcp["keepalives"] or not patience or patience > 5 or alive > 10:
        yield (
            f"This host notices a dead link after {duration(patience or 900)}, with keepalives "
            f"{'after ' + duration(alive) if tcp['keepalives'] else 'off'}"
        )
    else:
        yield fine(f"This host notices a dead link after {duration(patience)}")
    idle = int(found.settings.get("tcp_keepalives_idle") or 0) or 7200
    if idle > 300 and found.pooler == NEVER:
        yield Said(
            f"The server first probes an idle client after {duration(idle)}; until then, "
            "connections of a lost host still count",
            level=NOTE,
            do="In psql: alter system set tcp_keepalives_idle = 60; "
            "alter system set tcp_keepalives_interval = 10; "
            "alter system set tcp_keepalives_count = 3; select pg_reload_conf()",
        )


# -- clocks ----------------------------------------------------------------------------------------
@examined(
    f"The server's clock differs from this host's by more than {FAR_OFFSET_SECONDS:g} s, or (a "
    f"note) by more than {OFFSET_SECONDS:g} s.",
    "Synchronise both hosts' clocks: timedatectl set-ntp true, or chronyc makestep",
)
def _clock(found: Examination) -> Iterator[str | Said]:
    clocks = found.clocks
    if not clocks.round_trips:
        return
    off, error = clocks.offset, clocks.offset_error
    ahead = "ahead of" if off > 0 else "behind"
    words = f"The server's clock is {abs(off):.3f} s {ahead} this host's (± {error:.3f} s)"
    if abs(off) - error > OFFSET_SECONDS:
        yield Said(
            f"{words}. Schedules fire by the server's clock; leases do not depend on it",
            level=WRONG if abs(off) - error > FAR_OFFSET_SECONDS else NOTE,
        )
    else:
        yield fine(words)


@examined(
    "The server's clock stepped while the doctor watched it.",
    "Let chrony slew instead of step (makestep only at the start), and look at the hypervisor's "
    "time synchronisation",
)
def _clock_step(found: Examination) -> Iterator[str | Said]:
    jump = found.clocks.jump
    if abs(jump) > JUMP_SECONDS:
        way = "forward" if jump > 0 else "back"
        yield f"The server's clock stepped {way} by {abs(jump):.3f} s during the observation"


@examined(
    f"The server's clock and this host's drift apart by more than {CLOCK_RATE_ERROR:.1%}.",
    "Fix the clock source of the host whose clock drifts: "
    "cat /sys/devices/system/clocksource/*/current_clocksource",
)
def _clock_rate(found: Examination) -> Iterator[str | Said]:
    clocks = found.clocks
    if not clocks.round_trips or abs(clocks.jump) > JUMP_SECONDS:
        return
    if abs(clocks.rate) - clocks.rate_error > CLOCK_RATE_ERROR:
        yield (
            f"The two clocks drift apart by {abs(clocks.rate):.2%} (± {clocks.rate_error:.2%}); "
            f"leases tolerate {CLOCK_RATE_ERROR:.1%}"
        )
    elif clocks.rate_error < CLOCK_RATE_ERROR:
        yield fine(f"The two clocks differ in rate by {abs(clocks.rate):.3%}")


# -- the database's state, and the nodes -----------------------------------------------------------
@examined(
    "The server, the role or the database has few connections left.",
    "Raise the limit, or put a pooler in front",
)
def _connections(found: Examination) -> Iterator[str | Said]:
    server = found.server
    each = 1 + found.own.work_connections  # the guard's
    takes = f"a node holds {each}, and up to {found.own.user_connections + 2} more on demand"
    role, base, full = server["role"], server["database"], False
    for who, of, change in (
        ("the server", "", "system set max_connections = {}; then restart the server"),
        (f"role {role!r}", "role_", f"role {quoted(role)} connection limit {{}}"),
        (f"database {base!r}", "database_", f"database {quoted(base)} connection limit {{}}"),
    ):
        used, most = server[f"{of}used"], server[f"{of}most"]
        if 0 < most * FULL_SHARE <= used:
            full = True
            yield Said(
                f"{used} of the {most} connections of {who} are in use; {takes}",
                do=f"In psql: alter {change.format(most * 2)}; or put a pooler in front",
            )
    if not full:
        ours = sum(found.connections.values())
        yield fine(
            f"{server['used']} of {server['most']} connections are in use, {ours} of them by "
            f"nodes; {takes}"
        )


@examined(
    "Autovacuum is off, or does not keep up with a table.",
    "In psql: vacuum (verbose) {table}; see also xmin_pinned",
)
def _autovacuum(found: Examination) -> Iterator[str | Said]:
    late = [row for row in found.tables if bloated(row)]
    if found.settings.get("autovacuum") == "off":
        yield Said(
            "autovacuum is off: job tables grow without limit, and claims become slow",
            do="In psql: alter system set autovacuum = on; select pg_reload_conf()",
        )
        return
    for row in late:
        yield Said(
            f"Table {row.name} has {row.dead:,} dead rows beside {row.live:,} live ones: "
            "autovacuum does not keep up, or is held back by an open transaction",
            {"table": f"{quoted(found.own.schema)}.{row.name}"},
        )
    if found.tables and not late:
        yield fine("autovacuum is on and keeps up")


@examined(
    "The setting is too short for the round trips and renewals that the doctor watched, or nodes "
    "use different values.",
    "LEASEWORK_RECOVER_WITHIN={seconds} in every process",
)
def _recover_within(found: Examination) -> Iterator[str | Said]:
    leases = sorted({float(row.lease_seconds) for row in found.nodes})
    if len(leases) > 1:
        yield Said(
            "Nodes have different leases: " + ", ".join(f"{lease:g} s" for lease in leases),
            do="Give all the same recover_within (LEASEWORK_RECOVER_WITHIN)",
        )
    if not found.clocks.round_trips:
        return
    present, gap = found.own.recover_within, worst_gap(found)
    wanted, fenced = recommended(found, present), found.trouble.get("node_fenced", 0)
    seen = (
        f"round trips up to {worst_trip(found) * 1000:.1f} ms"
        + (f", renewals up to {gap:.1f} s apart" if gap is not None else "")
        + f" in {found.clocks.watched:.1f} s"
        + (f", {fenced} nodes fenced in a day" if fenced else "")
    )
    if wanted.seconds > present:
        yield Said(
            f"recover_within is {present:g} s, which is tight: {seen}; {wanted.why}",
            {"seconds": f"{wanted.seconds:g}"},
        )
    else:
        yield fine(
            f"recover_within is {present:g} s; {wanted.least:g} s or more would be safe, judging "
            f"by {seen}"
        )
