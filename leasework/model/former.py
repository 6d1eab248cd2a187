"""The moments of a schedule whose definition changed while some of them were due and undecided.

These are decided first, by the current policy. The Store keeps the definitions before like this::

    {"stretches": [{"spec": {...}, "first": "...", "until": "..."}, ...], "first": "..."}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from leasework.model.schedule import Spec


class Stretch(Struct, frozen=True):
    """One definition's moments. ``first`` None: it has none. ``until`` None: it is current."""

    spec: Spec
    first: datetime | None
    until: datetime | None

    def next_after(self, instant: datetime) -> datetime | None:
        if self.first is None:
            return None
        moment = self.first if instant < self.first else self.spec.next_after(instant)
        late = moment is not None and self.until is not None and moment > self.until
        return None if late else moment


class Redefined(Struct, frozen=True):
    """The moments of all stretches together."""

    stretches: tuple[Stretch, ...]

    def next_after(self, instant: datetime) -> datetime | None:
        moments = [stretch.next_after(instant) for stretch in self.stretches]
        return min((moment for moment in moments if moment is not None), default=None)


def redefined(
    spec: Spec, former: Mapping[str, Any], on_unreadable: Callable[[Exception], None]
) -> Redefined:
    """Combine ``spec`` with the definitions before it. One that can no longer be read is left out
    and passed to ``on_unreadable``."""
    stretches = []
    for given in former["stretches"]:
        try:
            before = Spec.from_json(given["spec"])
        except Exception as error:  # it must not stop the current definition
            on_unreadable(error)
            continue
        stretches.append(Stretch(before, _moment(given["first"]), _moment(given["until"])))
    return Redefined((*stretches, Stretch(spec, _moment(former["first"]), None)))


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
