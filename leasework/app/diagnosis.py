"""The doctor: what ``status`` reports, and the checks of the set-up."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from msgspec import structs

from leasework import errors
from leasework.config import Settings
from leasework.store.setup import Setup, examine
from leasework.watch.checks import database_problem, problems, ranked, setup_problems
from leasework.watch.facts import Facts
from leasework.watch.finding import NOTE, Finding
from leasework.watch.inspector import Inspector

Role = Literal["worker", "operator", "enqueue", "observer"]
"""What a login of the database is for."""


class Diagnosis(NamedTuple):
    found: list[Finding]
    """What is wrong, then what is only worth knowing."""
    facts: Facts | None = None
    """None: the application could not be read."""
    setup: Setup | None = None
    """None: the set-up could not be read."""


async def diagnose(inspector: Inspector, settings: Settings, role: Role) -> Diagnosis:
    """``role`` is what the login is for. Raises ConfigError for an unknown one."""
    if role not in get_args(Role):
        do = errors.suggest(str(role), get_args(Role))
        raise errors.ConfigError("no such role", got=role, do=do)
    facts = setup = None
    try:
        facts = await inspector.facts()
        found = problems(facts)
    except errors.LeaseworkError as error:
        found = [_unread(one, error, role) for one in await inspector.unread(error)]
    try:
        setup = await examine(settings, role, readable=facts is not None)
        found += setup_problems(setup)
    except errors.LeaseworkError as error:
        if facts is not None or found[0].info:  # otherwise the first error says it
            found.append(database_problem(error))
    return Diagnosis(ranked(found), facts, setup)


def _unread(problem: Finding, error: errors.LeaseworkError, role: Role) -> Finding:
    if role != "enqueue" or not isinstance(error, errors.PermissionDenied):
        return problem
    return structs.replace(
        problem,
        level=NOTE,
        sentence="The application was not checked: a login that only enqueues may not read it",
        do="leasework status, with a login that may",
    )
