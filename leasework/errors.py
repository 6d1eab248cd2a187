"""Every error that leasework raises. A message says what happened, what it got, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from uuid import UUID


class LeaseworkError(Exception):
    """The base class. ``what`` happened, what leasework ``got`` (shown as repr), what to ``do``."""

    def __init__(self, what: str, *, got: object = ..., do: str = "") -> None:
        self.what = what
        self.got = got
        self.do = do
        parts = [_sentence(what)]
        if got is not ...:
            parts.append(_sentence(f"Got: {shorten(got)}"))
        if do:
            parts.append(_sentence(do))
        # so that it can be printed, logged and stored, whatever it got
        super().__init__(storable(" ".join(parts)))


# -- the call is wrong: repeating it cannot help ----------------------------------------------
class UsageError(LeaseworkError):
    """The call is wrong. Repeating the same call cannot help."""


class ConfigError(UsageError):
    """A setting is unknown, out of range, or contradicts another setting."""


class MissingExtra(ConfigError, ImportError):
    """A package of one of leasework's extras is not installed."""


class UnknownTask(UsageError):
    """This application has no task of that name."""


class DuplicateTask(UsageError):
    """Two tasks of one application have the same name."""


class BadSchedule(UsageError):
    """A cron expression, an interval, a time or a time zone is invalid."""


class BadPayload(UsageError):
    """Arguments or a result are not JSON, contain a NUL, or exceed the limit."""


class BadJob(UsageError):
    """A job's options are wrong: an unknown option, or a value out of range."""


class BadFilter(UsageError):
    """A filter for jobs is invalid."""


class BadDeadline(UsageError):
    """A deadline is in the past, or its interval, reference or callback is invalid."""


class DeadlineNotFound(UsageError):
    """No deadline without a job has that name or id."""


class UniqueConflict(UsageError):
    """Another job holds the unique key, and ``on_conflict`` is ``"raise"``. ``.job`` is the id of
    the job that holds it."""

    def __init__(self, what: str, *, do: str = "", job: UUID | None = None) -> None:
        super().__init__(what, got=f"job {job}" if job else ..., do=do)
        self.job = job


class WrongConnection(UsageError):
    """``on=`` got something that is not a connection leasework can use, a connection without a
    transaction that can commit (autocommit, closed, aborted), one that is busy, or one that would
    block the event loop."""


class WrongSelect(UsageError):
    """The rows of a select cannot be claimed: it is a join that names no table, or locks rows."""


class BadNode(UsageError):
    """No node has that name, or more than one has."""


class JobNotFound(UsageError):
    """No job with that id waits or runs, or is kept as finished."""


class LockNotAcquired(LeaseworkError):
    """Another process holds the lock, or held it for the whole ``timeout``."""


# -- the server is wrong: an operator must act ------------------------------------------------
class ServerError(LeaseworkError):
    """The database answers, but leasework cannot work with it as it is."""


class WrongDsn(ServerError):
    """The DSN cannot be parsed, or names a host, database or role that does not exist."""


class WrongPassword(ServerError):
    """The server refused the credentials."""


class PermissionDenied(ServerError):
    """The role lacks a privilege."""


class ReadOnlyServer(ServerError):
    """The server is a replica or is set to read-only. A node there never leads or runs jobs."""


READ_ONLY = "the server is no replica, but default_transaction_read_only is on"
WRITE_AGAIN = (
    "Reset default_transaction_read_only of the login, the database or the server. A managed "
    "service sets it when the disk is full"
)


class SchemaMissing(ServerError):
    """The schema does not exist, or has tables but no record of migrations."""


class SchemaTooOld(ServerError):
    """The schema lacks migrations that this version needs."""


class SchemaTooNew(ServerError):
    """A newer version of leasework migrated the schema, and this one cannot work with it."""


class UnsafeServer(ServerError):
    """A setting of the server breaks a promise, and leasework cannot override it."""


class QueryFailed(ServerError):
    """The server refused a statement for a reason that leasework does not know."""


# -- the failure may pass: the caller may try again -------------------------------------------
class Unavailable(LeaseworkError):
    """The database could not be reached, or did not answer in time. If ``sent`` is true, the
    statement had been sent, and its outcome is unknown."""

    def __init__(self, what: str, *, got: object = ..., do: str = "", sent: bool = False) -> None:
        super().__init__(what, got=got, do=do)
        self.sent = sent


class Conflict(Unavailable):
    """A deadlock, a serialization failure, or a lock or statement timeout: nothing was changed."""


# -- a lease or claim is lost -----------------------------------------------------------------
class LostLease(LeaseworkError):
    """This process no longer holds the lease of its node, leadership or lock."""


class LostLock(LostLease):
    """An advisory lock was lost: the database no longer shows it, or does not answer."""


class LostClaim(LostLease):
    """The job was taken from this process, which can write nothing about it any more."""


# -- a job did not complete, or is not as asserted ----------------------------------------------
class JobError(LeaseworkError):
    """A job did not complete."""


class JobFailed(JobError):
    """The job that was waited for was discarded or quarantined. The message has its last error."""


class JobCancelled(JobError):
    """The job that was waited for was cancelled. In a handler in a thread: it should stop."""


class JobTimeout(JobError):
    """A handler ran longer than its ``timeout``."""


class WaitTimeout(LeaseworkError):
    """``job.wait(timeout=…)`` ended before the job finished, which continues; or
    ``ctx.event(timeout=…)`` before the signal came."""


class NotEnqueued(LeaseworkError, AssertionError):
    """``leasework.testing.assert_enqueued`` found no such job."""


# -- the embedded server ------------------------------------------------------------------------
class EmbeddedError(LeaseworkError):
    """The embedded PostgreSQL could not be found, created or started."""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "…")) else text + "."


def shorten(value: object, limit: int = 200) -> str:
    """Return ``repr(value)``, or a string unchanged, cut to ``limit`` characters."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except BaseException:  # a number of thousands of digits, an object whose repr fails
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def error_line(text: object, limit: int = 160) -> str:
    """Return one line for a list: the line of a stored error or of a traceback that names the
    exception, cut on the right. ``text`` is the error of a job, an attempt or an event."""
    lines = str(text or "").strip().splitlines() or [""]
    frames = [n for n, line in enumerate(lines) if line.startswith('  File "')]
    # it begins what leasework stores; in a bare traceback it follows the last frame
    if frames and lines[0].startswith(("Traceback ", "  ")):
        behind = (line for line in lines[frames[-1] + 1 :] if line and not line.startswith(" "))
        return shorten(next(behind, lines[-1].strip()), limit)
    return shorten(lines[0].strip(), limit)


def words(value: object) -> str:
    """Return ``str(value)``, even if its ``__str__``, which may be the user's, raises."""
    try:
        return str(value)
    except BaseException as worse:
        return f"(its str() raised {type(worse).__name__})"


def told(error: BaseException) -> str:
    """Return the error as ``ValueError: its message``."""
    return f"{type(error).__name__}: {words(error)}"


def storable(text: str) -> str:
    """Return ``text`` with NULs and lone surrogates escaped, so that PostgreSQL can store it."""
    if text.isascii():
        return text.replace("\x00", "\\0")
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a sentence that names the nearest known spelling, or lists what is known. The dashes
    of options do not count: with them, ``--where`` would be near ``--wide``."""
    names = sorted(known)
    by_lower = {name.lower().lstrip("-"): name for name in reversed(names)}
    near = difflib.get_close_matches(word.lower().lstrip("-"), by_lower, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {by_lower[near[0]]!r}?"
    return "Known: " + (", ".join(names) if names else "none") + "."


_HIDDEN = "••••••"
# none with an i: patterns treat the two Turkish ones like it, but casefold() does not
_NAMES = ("passw", "passphrase", "pwd", "secret", "key", "credent", "author", "token")
_BEFORE_QUOTES = ("value", "after", "parameter", "port", "string", "uri", "found in", "token", '")')
_SECRETS: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    # scheme://user:password@host, even if the password has an @ or a / that is not escaped
    (
        ("://",),
        re.compile(r"(\b[a-z][a-z0-9+.-]{1,40}://[^\s:/@'\"]{0,200}:)[^\s'\"]*@", re.I),
        rf"\1{_HIDDEN}@",
    ),
    # password=…, 'api_key': "…", ?sslpassword=…, --password …; a token's number is not secret
    (
        _NAMES,
        re.compile(
            r"""((?:(?<!wrong)passw|passphrase|(?<![a-z])pwd|secret|api_?key|access_?key|private_?key|credential
                |authorization|(?<![a-z])(?<!unexpected\ )token)[a-z_]{0,20}(?:\\?["'])?\s?[=:]\s?
                |--[a-z-]{0,20}(?:passw|secret|api-?key|access-?key|private-?key|token)[a-z]{0,20}\s)
                (?!\d+\b)(?:'(?:[^'\\]|\\.)*'|\\?"(?:[^"\\]|\\[^"])*\\?"|(?:(?:basic|bearer)\s)?[^\s'",;&)\]}]+)""",
            re.I | re.X,
        ),
        rf"\1{_HIDDEN}",
    ),
    # if libpq cannot parse a DSN, the part that it quotes may be of the password
    (
        tuple(f'{word}{colon} "' for word in _BEFORE_QUOTES for colon in ("", ":")),
        re.compile(
            r"""((?:\bvalue|after|parameter|port|string|URI|found\ in|token|"\)):?\ )"[^"]*\"""",
            re.X,
        ),
        rf'\1"{_HIDDEN}"',
    ),
    (('host name "',), re.compile(r'(host name )"[^"]*@'), rf'\1"{_HIDDEN}@'),
)
"""A pattern can only match if the text has one of its words in lower case. Searching for the words
first takes a tenth of the time, and each field of each event is searched."""


def without_secrets(text: str) -> str:
    """Mask secrets in the text of a log, an event or a stored error: passwords of DSNs, in every
    form that drivers and people use, and what follows a secret's name."""
    folded = text.casefold()
    masked = text
    for hints, pattern, instead in _SECRETS:
        for word in hints:
            if word in folded:
                masked = pattern.sub(instead, masked)
                break
    return masked
