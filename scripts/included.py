"""Copies files of deploy/ into the pages that show them: a block with the title ``compose.yaml``
shows the file of that name.

python -m scripts.included
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PAGES = [ROOT / "docs" / "howto" / "deployment.md"]
_BLOCK = re.compile(r'^(```\w+ title="([^"]+)"\n)(.*?)^```$', re.M | re.S)


def files() -> dict[str, Path]:
    """By name, which only one file of the folder has."""
    found = [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".whl"]
    return {path.name: path for path in sorted(found)}


def included(text: str) -> str:
    """The page with each block as the file is now."""
    there = files()

    def block(match: re.Match[str]) -> str:
        path = there.get(match[2])
        body = path.read_text("utf-8") if path else match[3]
        return f"{match[1]}{body}```"

    return _BLOCK.sub(block, text)


def main() -> None:
    for page in PAGES:
        page.write_text(included(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
