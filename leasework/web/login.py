"""Logins, sessions, and tokens against forged posts.

A session is a cookie, signed with a key of the login's secret. The server only keeps which sessions
have ended. The login form shows everybody such a signature, against which they could try secrets,
so deriving the key is slow.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from msgspec import Struct

from leasework.config import Limits
from leasework.env import Env
from leasework.errors import ConfigError, storable, suggest
from leasework.tuning import Tuning
from leasework.web.rights import ROLES, Role

SHORTEST_SECRET = 8


@dataclass(frozen=True, repr=False)
class Login:
    """A ``token`` for everybody, or ``people``: for each name a token and a role. A browser gets a
    form; a program may send ``Authorization: Basic`` with a token as the password; without
    ``people``, with any name. Raises ConfigError for a token of fewer than 8 characters."""

    token: str = ""
    people: Mapping[str, tuple[str, Role]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.token) == bool(self.people):
            raise ConfigError("a login is a token, or people")
        for name, (token, role) in self.people.items():
            if name != _stored(name) or not name or ":" in name:
                raise ConfigError("a person needs a short name without a colon", got=name)
            if role not in ROLES:
                raise ConfigError(f"{name} needs a role", got=role, do=suggest(role, ROLES))
            _check_secret(token)
        if not self.people:
            _check_secret(self.secret)

    @property
    def secret(self) -> str:
        """The key of all sessions. Nobody knows all tokens, so nobody signs another's session."""
        tokens = (f"{name}:{role}:{token}" for name, (token, role) in sorted(self.people.items()))
        return self.token or "\n".join(tokens)

    def who(self, name: str, secret: str) -> str | None:
        """The name to record, or None if refused. With one token, the name is not verified."""
        if self.people:
            token, _ = self.people.get(name.strip(), ("", ""))
            return name.strip() if _same(secret, token) and token else None
        return (_stored(name) or "token") if _same(secret, self.token) else None

    def role(self, who: str) -> Role | None:
        """The role of a person who has logged in. None: the person is not among the people now."""
        return self.people.get(who, ("", None))[1] if self.people else "admin"


def read_people(file: str) -> dict[str, tuple[str, Role]]:
    """The people of a file with a line ``name:role:token`` for each. Raises ConfigError."""
    people: dict[str, tuple[str, Role]] = {}
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file of tokens cannot be read: {error}", got=file) from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.strip().partition(":")
        role, _, token = rest.partition(":")
        if not token or name in people:
            do = "Write name:role:token, and each name once"
            raise ConfigError(f"line {number} of {file} names no new person", do=do)
        people[name] = (token, role)  # type: ignore[assignment]  # Login checks it
    if not people:
        raise ConfigError("the file of tokens names nobody", got=file)
    return people


def _stored(name: str) -> str:
    return storable(name.strip())[: Limits.text_chars]


def _check_secret(secret: str) -> None:
    if len(secret) < SHORTEST_SECRET:
        raise ConfigError(
            f"the login's secret must have at least {SHORTEST_SECRET} characters",
            do="Create one: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )


def _same(given: str, wanted: str) -> bool:
    """Compare in a time that does not reveal how much was right."""
    digests = [hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, wanted)]
    return hmac.compare_digest(*digests)


@cache
def _slow_key(secret: str) -> bytes:
    """A key that takes long and 32 MiB to derive: done once per process and secret."""
    given = secret.encode("utf-8", "backslashreplace")
    return hashlib.scrypt(
        given, salt=b"leasework dashboard", n=2**15, r=8, p=1, maxmem=64 * 2**20, dklen=32
    )


class LoginSession(Struct, frozen=True):
    who: str
    nonce: str
    epoch: int = -1
    """How often all sessions had been ended when it began. -1: each request brings its login."""


class Sessions:
    """Signs and reads cookies. ``secret`` is shared by all processes that serve the dashboard."""

    def __init__(self, env: Env, secret: str) -> None:
        self._env = env
        self._key = _slow_key(secret)

    def new(self, who: str, epoch: int = -1) -> LoginSession:
        return LoginSession(who, self._env.nonce(), epoch)

    def pack(self, session: LoginSession) -> str:
        """The session's cookie."""
        parts = [session.who, session.nonce, session.epoch]
        return self.sign("session", parts, Tuning.login_seconds)

    def unpack(self, cookie: str) -> LoginSession | None:
        """The cookie's session, or None if it is forged, changed or expired."""
        parts = self.read("session", cookie)
        if isinstance(parts, list) and [type(part) for part in parts] == [str, str, int]:
            return LoginSession(*parts)
        return None

    def form_token(self, session: LoginSession) -> str:
        """The token in each form of this session; another site cannot know it."""
        return self._mac("form", session.nonce)

    def right_form_token(self, session: LoginSession, given: str) -> bool:
        return _same(given, self.form_token(session))

    def sign(self, what: str, value: object, seconds: float) -> str:
        """``value`` as signed text, which :meth:`read` accepts for this many seconds."""
        until = self._env.wall_now().timestamp() + seconds
        text = json.dumps([until, value])
        body = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        return f"{body}.{self._mac(what, body)}"

    def read(self, what: str, text: str) -> object:
        """The signed value, or None."""
        body, _, mac = text.partition(".")
        if len(text) > 4096 or not _same(mac, self._mac(what, body)):
            return None
        try:
            until, value = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except ValueError:
            return None
        return value if until > self._env.wall_now().timestamp() else None

    def _mac(self, what: str, text: str) -> str:
        return hmac.new(self._key, f"{what}\n{text}".encode(), hashlib.sha256).hexdigest()
