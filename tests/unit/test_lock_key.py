"""Keys of advisory locks: which number a name, a number or a pair becomes."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given, strategies as st

from leasework.errors import ConfigError
from leasework.model.lock_key import Noted, letters, lock_key

INT4 = st.integers(-(2**31), 2**31 - 1)
INT8 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=50
    )
)
def test_a_name_is_the_first_eight_bytes_of_its_sha_256_little_endian_and_signed(name):
    (wanted,) = struct.unpack("<q", hashlib.sha256(name.encode()).digest()[:8])
    key = lock_key(name)
    assert (key.key, key.class_id, key.object_id) == (wanted, None, None)
    assert key.noted == Noted("key", wanted, name) and key.label == name


def test_known_keys_never_change():
    """Two versions of an application that differ here would not exclude each other."""
    assert lock_key("nightly").key == 1630262648214010666
    assert lock_key(("order", 42)).class_id == -1770067138


def test_a_number_is_taken_as_it_is_and_shows_what_it_spells():
    key = lock_key(0x52494F4C)
    assert (key.key, key.label, key.noted) == (1380536140, "RIOL (1380536140)", None)
    assert key.in_pg_locks == (0, 1380536140, 1)
    assert lock_key(-1).in_pg_locks == (2**32 - 1, 2**32 - 1, 1)
    assert lock_key(7).label == "7"


@given(INT8)
def test_what_pg_locks_shows_leads_back_to_the_number(number):
    classid, objid, objsubid = lock_key(number).in_pg_locks
    (back,) = struct.unpack("<q", struct.pack("<Q", classid << 32 | objid))
    assert (back, objsubid) == (number, 1)
    spelt = letters(number)
    assert spelt is None or int.from_bytes(spelt.encode(), "big") == number


@given(INT4, INT4)
def test_a_pair_stays_a_pair(kind, number):
    key = lock_key((kind, number))
    assert (key.key, key.class_id, key.object_id) == (None, kind, number)
    assert key.in_pg_locks == (kind % 2**32, number % 2**32, 2)
    assert key.label == f"{kind}:{number}"


def test_an_object_beyond_32_bits_is_refused_until_it_is_declared():
    with pytest.raises(ConfigError, match=r"wide=True") as refused:
        lock_key(("order", 2**31))
    assert "2147483648" in str(refused.value)
    large = lock_key(("order", 2**31), wide=True)
    assert large.key == lock_key("order:2147483648").key
    # a declaration changes no lock of the others: old and new code exclude each other
    assert lock_key(("order", 42), wide=True) == lock_key(("order", 42))
    assert lock_key(("order", -(2**31))).object_id == -(2**31)
    with pytest.raises(ConfigError, match="64 bits"):
        lock_key(("order", 2**63), wide=True)


@pytest.mark.parametrize(
    "wrong, words",
    [
        ("", "must be text"),
        ("x" * 201, "at most 200"),
        ("a\0b", "no NUL"),
        (True, "a name, a number or a"),
        (1.5, "a name, a number or a"),
        (None, "a name, a number or a"),
        (2**63, "Its signed form is -9223372036854775808"),
        (2**64, "signed number of 64 bits"),
        (("order",), "a name, a number or a"),
        (("order", "42"), "For other ids lock a name"),
        (("order", True), "a whole number"),
        ((1.5, 1), "the class of a pair"),
        ((2**31, 1), "Its signed form is -2147483648"),
        (["order", 1], "a name, a number or a"),
    ],
)
def test_what_is_no_key_is_refused_with_what_would_be_one(wrong, words):
    with pytest.raises(ConfigError, match=words):
        lock_key(wrong)
