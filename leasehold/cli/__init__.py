"""The command ``leasehold``. Everything is imported by the verb that needs it."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit: 0 well, 1 something is wrong, 2 wrong usage."""
    from leasehold.cli.root import root

    root(prog_name="leasehold")
