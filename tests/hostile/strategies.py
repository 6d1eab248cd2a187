"""Values that nobody meant to give, and the one property that all of them are held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st

from leasework.errors import LeaseworkError

quick = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))

odd_text = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="\x00\ud800\n '\"\\;:%{}$-*/@,=", max_size=12),
    st.sampled_from(["", " ", "NaN", "Infinity", "-0", "null", "now", "é" * 300, "x" * 201, "²"]),
)
odd_numbers = st.one_of(
    st.integers(),
    st.sampled_from([10**400, -(10**400), 2**31, 2**63, -1, 0, 32768, -32769]),
    st.floats(),
    st.booleans(),
)
odd_values = st.recursive(
    st.none() | odd_numbers | odd_text | st.binary(max_size=5) | st.builds(object),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def mixed(*right: Any) -> st.SearchStrategy[Any]:
    """One of the right values, or whatever."""
    return st.sampled_from(right) | odd_values


def clear(error: LeaseworkError) -> None:
    """It says what happened in words that can be printed, logged and stored."""
    text = str(error)
    assert text.strip() and len(text) < 2000
    text.encode()
    assert "\x00" not in text


def refused_or(call: Callable[[], Any]) -> Any:
    """What ``call`` returns; None after a clear error. Anything else that it raises is a bug."""
    try:
        return call()
    except LeaseworkError as error:
        clear(error)
        return None
