"""What a child process imports for tests/pg/test_deadlines.py."""

from __future__ import annotations

from leasework import Context


def its_deadline(ctx: Context) -> list[str]:
    assert ctx.deadline
    return [str(ctx.deadline.id), ctx.deadline.state]
