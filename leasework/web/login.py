"""Logins, sessions without state on the server, and tokens against forged posts.

A session is a cookie, signed with a key of the login's secret. The login form shows everybody such
a signature, against which they could try secrets, so deriving the key is slow.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from functools import cache

from msgspec import Struct

from leasework.config import Limits
from leasework.env import Env
from leasework.errors import ConfigError, storable
from leasework.tuning import Tuning

SHORTEST_SECRET = 8


@dataclass(frozen=True, repr=False)
class Login:
    """Either a ``token``, or ``user`` and ``password``. A browser gets a form; a program may send
    ``Authorization: Basic`` (with a token: any name, and the token as the password). Raises
    ConfigError for a token or password of fewer than 8 characters."""

    token: str = ""
    user: str = ""
    password: str = ""

    def __post_init__(self) -> None:
        if bool(self.token) == bool(self.user or self.password):
            raise ConfigError("a login is a token, or a user and a password")
        if not self.token and not (self.user and self.password):
            raise ConfigError("a login needs both a user and a password")
        if len(self.secret) < SHORTEST_SECRET:
            raise ConfigError(
                f"the login's secret must have at least {SHORTEST_SECRET} characters",
                do="Create one: python -c 'import secrets; print(secrets.token_urlsafe())'",
            )

    @property
    def secret(self) -> str:
        return self.token or self.password

    def who(self, name: str, secret: str) -> str | None:
        """The name to record, or None if refused. With a token, the name is not verified."""
        right = _same(secret, self.secret)
        if self.user:
            right = _same(name, self.user) and right
        name = storable(name.strip())[: Limits.text_chars]
        return (name or "token") if right else None


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


class Sessions:
    """Signs and reads cookies. ``secret`` is shared by all processes that serve the dashboard."""

    def __init__(self, env: Env, secret: str) -> None:
        self._env = env
        self._key = _slow_key(secret)

    def new(self, who: str) -> LoginSession:
        return LoginSession(who, self._env.nonce())

    def pack(self, session: LoginSession) -> str:
        """The session's cookie."""
        return self.sign("session", [session.who, session.nonce], Tuning.login_seconds)

    def unpack(self, cookie: str) -> LoginSession | None:
        """The cookie's session, or None if it is forged, changed or expired."""
        parts = self.read("session", cookie)
        if isinstance(parts, list) and len(parts) == 2 and all(isinstance(p, str) for p in parts):
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
