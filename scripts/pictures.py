"""Copies the pictures that the docs show out of those that `make web-shots` took, made smaller.

python -m scripts.pictures build/shots docs/images
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SHOWN = (
    "now-light",
    "now-dark",
    "jobs-light",
    "schedules-dark",
    "database-light",
    "now-light-phone",
)
"""The pictures of the docs: the page, the theme, and whether it has the width of a phone, as the
dashboard's tests name them. The page of a failed job is not one, because its traceback names
folders of the machine."""


def main(taken: Path, shown: Path) -> None:
    """Copy the pictures. Raises FileNotFoundError if a page has no screenshot."""
    for name in SHOWN:
        shutil.copyfile(taken / f"{name}.png", shown / f"{name}.png")
        print(shown / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
