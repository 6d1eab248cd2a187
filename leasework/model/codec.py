"""Encodes stored arguments and results with an application's codec, for example to encrypt them."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Any, Protocol

from leasework.errors import BadPayload, told
from leasework.model.job import decode, encode

ENCODED = "$encoded"
"""The key of the text that is stored instead of a value. No argument can have this name."""


_ENDS = (KeyboardInterrupt, SystemExit, GeneratorExit)


class Codec(Protocol):
    """What ``App(codec=…)`` takes::

        class Encrypted:
            def __init__(self, key: bytes) -> None:
                self._fernet = Fernet(key)

            def encode(self, data: bytes) -> bytes:
                return self._fernet.encrypt(data)

            def decode(self, data: bytes) -> bytes:
                return self._fernet.decrypt(data)

    Both methods may run in any thread, and must not wait.
    """

    def encode(self, data: bytes) -> bytes:
        """Return what to store for ``data``, which is JSON text in UTF-8."""
        ...

    def decode(self, data: bytes) -> bytes:
        """Return what :meth:`encode` was given. Raises an error for data that it did not make."""
        ...


def sealed(codec: Codec | None, label: str, text: str, limit: int) -> str:
    """Return the JSON text to store for ``text``. ``limit`` is in bytes. Raises BadPayload."""
    if codec is None:
        if text.startswith(f'{{"{ENCODED}":'):  # nobody could read it
            raise BadPayload(f"{label}: a value cannot begin with the key {ENCODED!r}")
        return text
    try:
        data = codec.encode(text.encode())
        stored = {ENCODED: b64encode(data).decode()}
    except _ENDS:
        raise
    except BaseException as error:  # also a panic of an extension
        raise BadPayload(
            f"{label}: the codec failed to encode: {told(error)}",
            do="Correct the codec: encode takes bytes and returns bytes",
        ) from error
    return encode(label, stored, limit)


def opened(codec: Codec | None, stored: Any) -> Any:
    """Return the value that was sealed. A value that was stored without a codec is not changed.
    Raises BadPayload."""
    if not isinstance(stored, dict) or stored.keys() != {ENCODED}:
        return stored
    if codec is None:
        raise BadPayload("it is encoded, and this application has no codec", do="Set App(codec=…)")
    try:
        return decode(codec.decode(b64decode(stored[ENCODED], validate=True)))
    except (binascii.Error, TypeError) as error:
        raise BadPayload(
            f"its encoded text is damaged: {error}",
            do="Restore the row from a backup, or discard the job",
        ) from None
    except _ENDS:
        raise
    except BaseException as error:
        raise BadPayload(
            f"the codec failed to decode it: {told(error)}",
            do="Give this process the codec and the key with which it was encoded",
        ) from error
