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
"""As the tests of the dashboard name them: page, theme, and the width of a phone. Not the page of a
failed job: its traceback names folders of the machine."""


def main(taken: Path, shown: Path) -> None:
    """Raises FileNotFoundError when a page was not taken."""
    for name in SHOWN:
        shutil.copyfile(taken / f"{name}.png", shown / f"{name}.png")
        print(shown / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
