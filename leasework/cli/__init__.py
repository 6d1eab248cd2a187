"""The command ``leasework``. Each verb imports what it needs itself, so that --help is quick."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit: 0 success, 1 problem or failure, 2 wrong usage, 141 the
    reader of the output has gone."""
    from leasework.cli.root import root

    root(prog_name="leasework")
