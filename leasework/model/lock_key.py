"""Keys of PostgreSQL's advisory locks, and their names (ADR 10).

A name becomes the first 8 bytes of its SHA-256, little-endian and signed. A number is the key
itself. A (class, object) pair stays a pair; its class may have a name.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec import Struct

from leasework.config import Limits, check_text
from leasework.errors import ConfigError

_MASK_32, _MASK_64 = (1 << 32) - 1, (1 << 64) - 1


class Noted(Struct, frozen=True):
    """What the database records, so that the key can be shown as a name."""

    kind: str
    """``key``: 64 bits; ``class``: the first half of a pair."""
    key: int
    name: str


class LockKey(Struct, frozen=True):
    """Either ``key`` (64 bits, signed) or ``class_id`` and ``object_id`` (32 bits, signed)."""

    key: int | None
    class_id: int | None
    object_id: int | None
    label: str
    """What people see: the name, ``class:object``, or the number with its letters."""
    noted: Noted | None = None

    @property
    def in_pg_locks(self) -> tuple[int, int, int]:
        """(classid, objid, objsubid), unsigned, as ``pg_locks`` shows it."""
        if self.key is not None:
            unsigned = self.key & _MASK_64
            return unsigned >> 32, unsigned & _MASK_32, 1
        assert self.class_id is not None and self.object_id is not None
        return self.class_id & _MASK_32, self.object_id & _MASK_32, 2

    @property
    def params(self) -> dict[str, int | None]:
        """The parameters of a statement that takes the lock, or looks for it in ``pg_locks``."""
        classid, objid, objsubid = self.in_pg_locks
        return {
            "key": self.key,
            "class_id": self.class_id,
            "object_id": self.object_id,
            "classid": classid,
            "objid": objid,
            "objsubid": objsubid,
        }


def lock_key(target: Any, *, wide: bool = False) -> LockKey:
    """Return the key of a name, of a number of 64 bits, or of a (class, object) pair. ``wide``
    allows an object's number of more than 32 bits: such a pair gets the key of the name
    ``class:object``. Smaller ones stay pairs, so that code with and without ``wide`` excludes each
    other. Raises ConfigError."""
    if isinstance(target, str):
        return _named(check_text("a lock's name", target, Limits.text_chars))
    if _is_number(target):
        return _raw(target)
    if isinstance(target, tuple) and len(target) == 2:
        return _pair(target[0], target[1], wide)
    raise ConfigError(
        "an advisory lock is a name, a number or a (class, object) pair",
        got=target,
        do='advisory_lock("nightly"), advisory_lock(0x52494F4C), advisory_lock(("order", 42))',
    )


def key_of_name(name: str) -> int:
    """The first 8 bytes of its SHA-256, little-endian, signed. In SQL: ``leasework.lock_key``."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)


def class_of_name(name: str) -> int:
    """The first 4 bytes, in the same way. In SQL: ``leasework.lock_class``."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little", signed=True)


def letters(key: int) -> str | None:
    """The letters of a number that was made of 3 to 8 of them: 0x52494F4C is ``RIOL``."""
    unsigned = key & _MASK_64
    raw = unsigned.to_bytes((unsigned.bit_length() + 7) // 8, "big")
    plain = 3 <= len(raw) <= 8 and all(0x21 <= byte <= 0x7E for byte in raw)
    return raw.decode() if plain else None


def _named(name: str) -> LockKey:
    key = key_of_name(name)
    return LockKey(key, None, None, name, Noted("key", key, name))


def _raw(number: int) -> LockKey:
    _check_bits("a lock's number", number, 64)
    spelt = letters(number)
    return LockKey(number, None, None, f"{spelt} ({number})" if spelt else str(number))


def _pair(kind: Any, number: Any, wide: bool) -> LockKey:
    if not _is_number(number):
        raise ConfigError(
            "the object of a (class, object) pair is a whole number",
            got=number,
            do=f'For other ids lock a name: advisory_lock("{kind}:{number}")',
        )
    if isinstance(kind, str):
        name = check_text("a lock's name", kind, Limits.text_chars)
        class_id, noted = class_of_name(name), Noted("class", class_of_name(name), name)
    elif _is_number(kind):
        _check_bits("a lock's class", kind, 32)
        name, class_id, noted = str(kind), kind, None
    else:
        raise ConfigError("the class of a pair is a name, or a number of 32 bits", got=kind)
    label = f"{name}:{number}"
    if not -(1 << 31) <= number < 1 << 31:
        if not wide:
            raise ConfigError(
                "an object of a (class, object) pair has 32 bits, and this one needs more",
                got=number,
                do="Declare that the ids of this class may be larger: "
                f"advisory_lock(({kind!r}, {number}), wide=True); those get keys of 64 bits",
            )
        _check_bits("a lock's object", number, 64)
        return _named(label)
    return LockKey(None, class_id, number, label, noted)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_bits(label: str, number: int, bits: int) -> None:
    half = 1 << bits - 1
    if not -half <= number < half:
        hint = f"Its signed form is {number - 2 * half}" if half <= number < 2 * half else ""
        raise ConfigError(f"{label} must be a signed number of {bits} bits", got=number, do=hint)
