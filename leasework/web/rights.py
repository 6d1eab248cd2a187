"""Who may do what: three roles, and which of them each action needs."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal["viewer", "operator", "admin"]
"""A viewer reads. An operator also acts on one thing at a time, and can take that back or repeat
it. An admin also does what many jobs feel, and what runs tasks with any arguments."""
ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do all that those before it may."""
NEEDS: dict[str, dict[Role, str]] = {
    "/problems/act": {"operator": "silence end"},
    "/jobs/bulk": {"admin": "retry cancel discard"},
    "/jobs/selected": {"operator": "retry cancel discard"},
    "/jobs/{job}/act": {
        "operator": "retry cancel discard requeue reprioritize signal stack",
        "admin": "cancel_family",
    },
    "/queues/act": {"operator": "pause resume"},
    "/limits/act": {"operator": "set reset pause resume"},
    "/schedules/act": {"operator": "run pause resume", "admin": "remove"},
    "/schedules/put": {"admin": "new edit"},
    "/nodes/act": {"operator": "halt resume seen", "admin": "drain"},
    "/sessions/act": {"admin": "end"},
}
"""For each address of a form, the actions that a role is the first to have."""


def needed(path: str, act: str) -> Role:
    """The least role for an action. What stands in no table is only for admins."""
    for role, acts in NEEDS.get(path, {}).items():
        if act in acts.split():
            return role
    return "admin"


def allows(role: Role, path: str, act: str) -> bool:
    return ROLES.index(role) >= ROLES.index(needed(path, act))
