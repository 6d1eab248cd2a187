"""Every default, with its limits and its unit. All intervals of the lease protocol are derived from
``recover_within`` (docs/explanation/protocol.md)."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, ClassVar, Literal, TypedDict

from leasework.errors import ConfigError, storable, suggest

CLOCK_RATE_ERROR = 1e-3
"""rho: how much faster or slower one process's clock may run than another's."""

JITTER_SECONDS = 0.3
"""A candidate waits up to this long before it acts, so that candidates do not all ask at once."""

ROUND_TRIPS_SECONDS = 0.5
"""The time for the round trips of a takeover and the first rescue after it."""

LEADER_PREFIX, LOCK_PREFIX = "leader:", "lock:"
"""The prefixes of users' leaders and locks, in tables and events. An application's own leader has
the application's name, which has neither prefix."""

LATE_RENEWAL_SHARE = 0.6
"""A renewal older than this share of the lease is late: three in a row have failed."""

TROUBLE_SECONDS = 600.0
"""A failure is reported for this long, and failures are counted over this time."""
DISCARDED_SHARE = 0.01
"""Discarded jobs are a problem from this share of their task's finished jobs. A quiet task, with at
most a hundred jobs in that time, reaches it with the first discarded job."""
FAILED_FEWEST, FAILED_SHARE = 5, 0.1
"""Failed attempts that will be retried are a problem if one task has this many, and they are at
least this share of all its attempts."""
STOPPED_RUNS = 3
"""A job is a problem if stops of its workers interrupted this many runs in a row."""
PACE_JOBS = 20
"""A task has a usual time if at least this many of its jobs completed."""
HANG_SECONDS, HANG_TIMES = 10.0, 10.0
"""A job hangs if it has run for this long, and for this many times of what 99 % of its task's runs
of the last day did not exceed."""
SLOW_TIMES = 5.0
"""A task is slow if its median of ten minutes is this many times that of the last day."""
BLOCKED_SECONDS = 5.0
"""A session may block leasework's for this long."""
LOCK_SECONDS = 30.0
"""It is worth a note if somebody has waited for a lock for this long."""
CRASH_LOOP_DEATHS, CRASH_LOOP_SECONDS = 3, 300.0
"""This many deaths of one application's nodes within this time are a crash loop."""
DEATH_SECONDS = 86_400.0
"""A dead node is shown for this long, unless a person acknowledges it earlier."""
RESTART_SECONDS = 60.0
"""If the leading process started at most this long after the moments that a schedule missed, they
are only a note: it was a deployment."""
SILENT_SCHEDULE_SECONDS = 10.0
"""A schedule is silent if a due moment has been undecided for this long."""
DEAF_SECONDS = 6.0
"""A node that has had no wake-ups for longer than this is not just starting."""
DEAD_ROWS = 100_000
"""Vacuum does not keep up if a table has more dead rows than this, and more than live ones."""
SLOT_TRANSACTIONS = 100_000
"""An unused replication slot is a problem if it is more than this many transactions old."""
HIDDEN_TRANSACTIONS = 1_000_000
"""A session that the login may not see blocks vacuum if its snapshot is older."""
MOST_REFUSED = 10
"""So many refused logins within ten minutes are a problem."""
FULL_SHARE = 0.8
"""Few connections are left if this share of them is in use."""

ON_DEMAND_SECONDS = 60.0
"""A connection that was opened on demand is closed after this time without use."""

MIN_RECOVER_WITHIN = 9.0
MAX_RECOVER_WITHIN = 3600.0
RELOAD_GRACE_SECONDS = 0.5


@dataclass(frozen=True)
class Timings:
    """The intervals in seconds, all derived from ``recover_within``. T is stored in the lease's
    row, and a candidate waits by the row's T, never by its own."""

    recover_within: float
    lease: float
    """T: the length of a lease."""
    renew: float
    """R: between two renewals. A follower polls as often, plus or minus a fifth."""
    trust: float
    """D: a holder trusts its lease this long, counted from before it sent the renewal."""
    call_timeout: float
    """The time limit of one call of the guard."""
    grace: float
    """G: a worker process exits if work still runs this long after the deadline."""
    jitter: float = JITTER_SECONDS

    @classmethod
    def derive(cls, recover_within: float) -> Timings:
        """For all values that this accepts, T has room for two renewals and a call within D, and F
        is below ``recover_within``, as docs/explanation/protocol.md needs it."""
        if not MIN_RECOVER_WITHIN <= recover_within <= MAX_RECOVER_WITHIN:
            nearest = min(max(recover_within, MIN_RECOVER_WITHIN), MAX_RECOVER_WITHIN)
            raise ConfigError(
                "recover_within is out of range",
                got=recover_within,
                do=f"The nearest allowed value is {nearest:g} seconds",
            )
        lease = recover_within * 2 / 3
        renew = renewal_seconds(lease)
        margin = max(1.0, lease / 10)
        return cls(
            recover_within=recover_within,
            lease=lease,
            renew=renew,
            trust=lease * (1 - CLOCK_RATE_ERROR) - margin,
            call_timeout=renew,
            grace=margin / 2,
        )

    @property
    def failover(self) -> float:
        """F: the longest time without a leader after the leader's death."""
        return 1.2 * self.renew + wait_seconds(self.lease) + self.jitter + ROUND_TRIPS_SECONDS

    @property
    def retry(self) -> float:
        """The pause after a call that failed or got no answer."""
        return 0.2 * self.renew

    @property
    def courtesy(self) -> float:
        """How long a free lock is left to the process that is first in its queue."""
        return 0.5 * self.renew

    @property
    def stuck(self) -> float:
        """An event loop that does not answer for longer is stuck. It gives its leaderships to a
        process whose loop runs."""
        return 2.0 * self.renew


def renewal_seconds(lease_seconds: float) -> float:
    """R: a holder renews so often."""
    return lease_seconds / 5


def wait_seconds(lease_seconds: float) -> float:
    """W: how long a row must have been seen unchanged before it may be taken over."""
    return lease_seconds * (1 + CLOCK_RATE_ERROR)


@dataclass(frozen=True)
class _Numbers:
    """Each field is a number of its default's type. Seconds may be a timedelta."""

    def __post_init__(self) -> None:
        for known in fields(self):
            label = f"{type(self).__name__}.{known.name}"
            value = _typed(label, getattr(self, known.name), type(known.default))
            least = _LEAST.get(known.name, 0)
            if value < least:
                raise ConfigError(f"{label} must be at least {least}", got=value)
            object.__setattr__(self, known.name, value)


@dataclass(frozen=True)
class Limits(_Numbers):
    """Limits of one application. Bytes are bytes of UTF-8 JSON, counts are rows."""

    result_bytes: int = 1 << 20
    """What a handler returns. A larger result discards the job."""
    batch_rows: int = 1000
    """Rows in one statement. With more, the planner may leave the nested loop."""
    unrecorded_outcomes: int = 2000
    """No new job starts while more finished jobs than this are not yet recorded."""
    flush_seconds: float = 0.02
    """The longest time in seconds that an outcome waits for its batch."""
    enqueue_rows: int = 100_000
    """Jobs in one call of ``enqueue_many``, which inserts all of them or none."""
    max_crashes: int = 3
    """A job that was running at this many crashes of its node is quarantined. At the last of them
    it was running alone."""

    # not settable: no application needs to change these
    payload_bytes: ClassVar[int] = 1 << 20
    """A job's arguments, unless the setting ``payload_limit`` names another limit."""
    json_depth: ClassVar[int] = 200
    """Nesting of arguments and results. Every process can read this, however deep its own calls."""
    error_chars: ClassVar[int] = 8000
    """Characters of an attempt's error with its traceback, and of every text of an event."""
    text_chars: ClassVar[int] = 200
    """Characters of names (tasks, queues, schedules, leaders) and of progress notes."""
    batch_bytes: ClassVar[int] = 1 << 20
    """Bytes of outcomes or events in one statement, unless it has only one; less on a slow link."""
    max_attempts: ClassVar[int] = 32767
    """The highest ``max_attempts`` of a task."""
    run_seconds: ClassVar[float] = 7 * 86400.0
    """The longest ``timeout`` of a task, in seconds."""
    concurrency: ClassVar[int] = 10_000
    """Jobs of one queue that run at once in one process."""


@dataclass(frozen=True)
class Polling(_Numbers):
    """Seconds between two polls of the database when no notification arrives."""

    listening: float | timedelta = 10.0
    """While LISTEN is known to work."""
    blind: float | timedelta = 0.5
    """While LISTEN does not work (a pooler, a lost connection, a full queue of notifications)."""
    stage: float | timedelta = 1.0
    """How late a delayed job may become available."""
    listen_check: float | timedelta = 120.0
    """Between two self-tests of LISTEN."""


@dataclass(frozen=True)
class Retention(_Numbers):
    """How long records are kept."""

    finished_days: int = 7
    """Finished jobs, with arguments and results. They are dropped by the day."""
    ticks_days: int = 30
    """The ledger of schedules."""
    events_days: int = 30
    """Events."""
    attempts_days: int = 30
    """Failed attempts."""
    history_days: int = 14
    """The counts for each minute. With 0, none are made."""
    catch_up_seconds: float | timedelta = 86400.0
    """Seconds, at least 60. A later tick never fires; it is recorded as missed."""


_RANGES: dict[str, tuple[float, float]] = {
    "work_connections": (1, 1000),
    "user_connections": (1, 1000),
    "call_timeout": (0.1, 3600),
    "grace": (0, 7 * 86400),
    "pin_seconds": (0, 30 * 86400),
    "overdue_seconds": (0, 30 * 86400),
    "payload_limit": (1, (1 << 30) - 1),
}
"""The lowest and the highest value. PostgreSQL cannot store a value of a gigabyte."""


OTHER_VARIABLES = {
    "LEASEWORK_HOME": "The directory for the data of embedded PostgreSQL servers.",
    "LEASEWORK_TEST_DSN": "The server on which `leasework.testing` creates databases.",
    "LEASEWORK_WEB_TOKEN": "The token that `leasework web` asks for.",
    "LEASEWORK_WEB_PEOPLE": "The file of those who use `leasework web`: name:role:token.",
    "LEASEWORK_LOCK": "Set by `leasework lock` for its command: the lock's name.",
    "LEASEWORK_LOCK_TOKEN": "Set by `leasework lock` for its command: the lock's token.",
    "LEASEWORK_NODE_ID": "Set by a supervisor for its workers.",
    "LEASEWORK_EXECUTOR": 'Set by a worker for the children of `executor="process"`.',
    "LEASEWORK_GIVEN_DSN": "Set by a supervisor for its workers: its `--dsn`.",
}
"""Environment variables that are not settings, and their meaning."""

_FOREIGN_VARIABLES = re.compile(
    # Kubernetes sets these in every pod when a service is named leasework or leasework-…
    r"LEASEWORK_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
    # leasework's own tests and benchmarks
    r"|LEASEWORK_(TEST_\w+|LONG|SHOTS|FINISHED|READY|FILLED_DSN|BENCH_CACHE)"
)


@dataclass(frozen=True)
class Settings:
    """The settings of an :class:`leasework.App`. Each one is an argument of ``App`` and an
    environment variable ``LEASEWORK_<NAME>``. The argument wins."""

    dsn: str = field(default="", repr=False)
    """The database: ``postgresql://…``, ``key=value …`` or ``embedded``."""
    replica: str = field(default="", repr=False)
    """A hot standby of the database, from which the dashboard reads its lists of jobs, failures and
    events, and the history. All else reads and writes the primary."""
    name: str = "default"
    """The application's name. Each application in a schema has its own leader and schedules."""
    schema: str = "leasework"
    """The schema of leasework's tables: a plain lower-case SQL name."""
    recover_within: float = 15.0
    """Seconds within which a job of a dead node runs again. All intervals are derived from it."""
    release: str = ""
    """The name of this deployment, for blue/green deployments."""
    work_connections: int = 1
    """Connections of a node for claims, acks and notifications. The guard has one more."""
    user_connections: int = 3
    """The most connections that an event loop opens for your code's calls: enqueue, cancel, wait,
    progress. Each is opened on demand and closed after a minute without use."""
    listen: bool = True
    """Whether to listen for notifications. With False, a node polls."""
    call_timeout: float = 10.0
    """The time limit of a call, in seconds. An enqueue gets 10 more for each megabyte."""
    grace: float = 10.0
    """Seconds that running jobs get to finish at a stop before they are cancelled. The default is
    0.5 in a server that restarts when the code changes: ``--reload`` or ``fastapi dev``."""
    payload_limit: int = Limits.payload_bytes
    """The most bytes that a job's arguments have as JSON."""
    pin_seconds: float = 300.0
    """Seconds after which ``status`` reports a transaction that blocks vacuum."""
    overdue_seconds: float = 60.0
    """Seconds after which ``status`` reports a due job that waits for a free slot."""
    log: str = "text"
    """The format of log lines of the command's processes: ``text`` or ``json``."""
    limits: Limits = field(default_factory=Limits)
    polling: Polling = field(default_factory=Polling)
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,39}", self.schema):
            raise ConfigError(
                "schema must be a plain lower-case SQL name of at most 40 letters, not pg_…",
                got=self.schema,
            )
        for label in ("name", "release"):
            check_text(label, getattr(self, label), Limits.text_chars, empty=label == "release")
        if self.name.startswith((LEADER_PREFIX, LOCK_PREFIX)):
            raise ConfigError(
                f"an application's name must not begin with {LEADER_PREFIX!r} or {LOCK_PREFIX!r}",
                got=self.name,
            )
        for label, (low, high) in _RANGES.items():
            if getattr(self, label) < low:
                raise ConfigError(f"{label} must be at least {low}", got=getattr(self, label))
            if getattr(self, label) > high:
                raise ConfigError(f"{label} must be at most {high}", got=getattr(self, label))
        for label in ("dsn", "replica"):  # libpq stops at a NUL, and would connect elsewhere
            if storable(getattr(self, label)) != getattr(self, label):
                raise ConfigError(f"{label} must be text without NUL or a lone surrogate")
        if self.log not in ("text", "json"):
            raise ConfigError("log must be 'text' or 'json'", got=self.log)
        catch_up: Any = self.retention.catch_up_seconds
        if catch_up < 60:
            raise ConfigError(
                "retention.catch_up_seconds must be at least 60, because a tick always fires a "
                "little late",
                got=f"{catch_up:g}",
                do="To skip late ticks, write missed='skip' at the schedule",
            )
        if self.retention.ticks_days * 86400 <= catch_up:
            raise ConfigError(
                "the tick ledger must be kept longer than the catch-up window",
                got=f"{self.retention.ticks_days} days kept, {catch_up:g} s catch-up",
                do="Raise retention.ticks_days or lower retention.catch_up_seconds",
            )
        Timings.derive(self.recover_within)

    @property
    def timings(self) -> Timings:
        return Timings.derive(self.recover_within)

    @classmethod
    def load(cls, given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
        """Load settings. Arguments win over the environment. Raises ConfigError, also for unknown
        names."""
        environ = os.environ if environ is None else environ
        known = {f.name: f for f in fields(cls)}
        for name in given:
            if name not in known:
                raise ConfigError(f"unknown option {name!r}", do=suggest(name, known))
        check_variables(environ)
        values: dict[str, Any] = {}
        for name, default in _plain_defaults().items():
            text = environ.get(f"LEASEWORK_{name.upper()}")
            if text is not None and given.get(name) is None:
                values[name] = _parse(name, text, type(default))
        values.update({name: value for name, value in given.items() if value is not None})
        # a developer's server starts the process that reloads with the arguments of its own
        if "grace" not in values and ("--reload" in sys.argv or sys.argv[1:2] == ["dev"]):
            values["grace"] = RELOAD_GRACE_SECONDS
        kinds = {name: type(default) for name, default in _plain_defaults().items()}
        kinds.update(limits=Limits, polling=Polling, retention=Retention)
        for name, kind in kinds.items():
            if name in values:
                values[name] = _typed(name, values[name], kind)
        return cls(**values)

    def to_environ(self) -> dict[str, str]:
        """Return the environment variables that give these settings to another process. The name
        of the application and of its release are not among them, because a process may have its
        own. There are none for limits, polling and retention."""
        found = {}
        for name, default in _plain_defaults().items():
            variable, value = f"LEASEWORK_{name.upper()}", getattr(self, name)
            if name not in ("name", "release") and (value != default or variable in os.environ):
                found[variable] = str(value)
        return found

    def to_text(self) -> str:
        """Return the settings as one line of JSON, for another process."""
        import msgspec  # imported late: --help must be quick

        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> Settings:
        """Return the settings that :meth:`to_text` wrote."""
        import msgspec

        return msgspec.json.decode(text, type=cls)


class SettingsGiven(TypedDict, total=False):
    """The settings as arguments of ``App``: the fields of :class:`Settings` except ``dsn``. None is
    the same as not given."""

    replica: str | None
    name: str | None
    schema: str | None
    recover_within: float | timedelta | None
    release: str | None
    work_connections: int | None
    user_connections: int | None
    listen: bool | None
    call_timeout: float | timedelta | None
    grace: float | timedelta | None
    payload_limit: int | None
    pin_seconds: float | timedelta | None
    overdue_seconds: float | timedelta | None
    log: Literal["text", "json"] | None
    limits: Limits | None
    polling: Polling | None
    retention: Retention | None


class ConfigureGiven(SettingsGiven, total=False):
    """All settings, as arguments of ``App.configure``."""

    dsn: str | None


def check_variables(environ: Mapping[str, str]) -> None:
    """Raise ConfigError for a ``LEASEWORK_…`` variable that nothing reads: it is misspelt."""
    known = {f"LEASEWORK_{name.upper()}" for name in _plain_defaults()} | OTHER_VARIABLES.keys()
    for name in environ.keys() - known:
        if name.startswith("LEASEWORK_") and not _FOREIGN_VARIABLES.fullmatch(name):
            raise ConfigError(
                f"unknown environment variable {name}", do=f"{suggest(name, known)} Or unset it"
            )


def _plain_defaults() -> dict[str, Any]:
    """The settings that an environment variable can hold, with their defaults."""
    plain = (str, int, float, bool)
    return {f.name: f.default for f in fields(Settings) if isinstance(f.default, plain)}


_TRUTH = {"1": True, "true": True, "yes": True, "on": True} | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


def _parse(name: str, text: str, kind: type) -> Any:
    try:
        return _TRUTH[text.strip().lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number"}.get(kind, "a number of seconds")
        raise ConfigError(f"LEASEWORK_{name.upper()} must be {wanted}", got=text) from None


_IN_WORDS = {
    float: "seconds, as a number or a timedelta",
    int: "a whole number",
    str: "text",
    bool: "True or False",
}


def _typed(name: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, timedelta):
        value = value.total_seconds()
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 1 << 53 else math.inf
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        wanted = _IN_WORDS.get(kind) or f"an object of leasework.{kind.__name__}"
        raise ConfigError(f"{name} must be {wanted}", got=value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number", got=value)
    return value


_LEAST = {"batch_rows": 1, "max_crashes": 2}
"""Of the numbers that may not be 0. The first crash is also counted for jobs that had not begun."""


def check_text(label: str, value: object, limit: int, *, empty: bool = False) -> str:
    """Check that ``value`` is text without NUL, of at most ``limit`` characters, and return it."""
    if not isinstance(value, str) or (not value and not empty):
        raise ConfigError(f"{label} must be text", got=value)
    if len(value) > limit or storable(value) != value:
        raise ConfigError(
            f"{label} must have at most {limit} characters, no NUL and no lone surrogate",
            got=ascii(value),
        )
    return value
