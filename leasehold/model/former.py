"""The moments of a schedule whose definition changed while some were due and undecided.

They are decided first, by the present policy. A stretch holds the moments of one definition, from
its first one until the instant at which the next definition replaced it. As the Store keeps them::

    {"stretches": [{"spec": {...}, "first": "...", "until": "..."}, ...], "first": "..."}

The outer ``first`` is that of the present definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leasehold.model.schedule import Spec


@dataclass(frozen=True)
class Stretch:
    """``first`` None: no moment at all; ``until`` None: the definition stands."""

    spec: Spec
    first: datetime | None
    until: datetime | None

    def next_after(self, instant: datetime) -> datetime | None:
        if self.first is None:
            return None
        moment = self.first if instant < self.first else self.spec.next_after(instant)
        late = moment is not None and self.until is not None and moment > self.until
        return None if late else moment


@dataclass(frozen=True)
class Redefined:
    """The moments of all stretches."""

    stretches: tuple[Stretch, ...]

    def next_after(self, instant: datetime) -> datetime | None:
        moments = [stretch.next_after(instant) for stretch in self.stretches]
        return min((moment for moment in moments if moment is not None), default=None)


def redefined(
    spec: Spec, former: Mapping[str, Any], on_unreadable: Callable[[Exception], None]
) -> Redefined:
    """``spec`` after the definitions before it. One of those that cannot be read any more is left
    out, and told."""
    stretches = []
    for given in former["stretches"]:
        try:
            before = Spec.from_json(given["spec"])
        except Exception as error:  # it must not silence the present definition
            on_unreadable(error)
            continue
        stretches.append(Stretch(before, _moment(given["first"]), _moment(given["until"])))
    return Redefined((*stretches, Stretch(spec, _moment(former["first"]), None)))


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
