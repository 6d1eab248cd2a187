"""Errors about the names of schedules."""

from __future__ import annotations

from leasework.errors import BadSchedule


def no_such_schedule(name: str) -> BadSchedule:
    return BadSchedule(f"no schedule is named {name!r}", do="See: leasework schedules")


def code_defines(name: str) -> BadSchedule:
    return BadSchedule(
        f"the code defines a schedule named {name!r}",
        do="Give this one another name, or take the other out of the code first",
    )
