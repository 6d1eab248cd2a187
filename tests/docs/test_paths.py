"""The files that pages, comments and docstrings name exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.arch import tree

FROM = (
    "",
    "leasework",
    "leasework/pg",
    "leasework/pg/sql",
    "lab",
    "lab/leasework_lab",
    "docs",
    "tests",
)
"""Where a path may begin, besides the folder of the file that names it."""
EXAMPLES = ("shop/", "orders/")
"""The readers' own folders."""
LEFT_OUT = ("tests/docs/test_paths.py",)
_PATH = re.compile(r"(?<![\w/.:}$~<>*%-])(?:\w+/)+\w+\.(?:py|sql|md)\b(?![/*])")


def naming() -> list[Path]:
    code = [*tree.ROOT.glob("leasework/**/*"), *tree.ROOT.glob("lab/**/*")]
    code += [*tree.ROOT.glob("tests/**/*.py"), *tree.ROOT.glob("scripts/*.py")]
    files = [file for file in code if file.suffix in (".py", ".sql", ".md")]
    files += [*tree.ROOT.glob("*.md"), *tree.ROOT.glob("docs/**/*.md")]
    return [file for file in files if file.relative_to(tree.ROOT).as_posix() not in LEFT_OUT]


def dangling(file: Path, root: Path) -> list[str]:
    folders = [file.parent, *(root / folder for folder in FROM)]
    lost = {
        path
        for path in _PATH.findall(file.read_text("utf-8"))
        if not path.startswith(EXAMPLES) and not any((home / path).exists() for home in folders)
    }
    return sorted(f"{file.relative_to(root)}: {path}" for path in lost)


def test_every_file_that_is_named_exists():
    wrong = [text for file in naming() for text in dangling(file, tree.ROOT)]
    assert not wrong, "\n".join(wrong)


def test_a_name_of_no_file_is_caught(tmp_path: Path):
    (tmp_path / "leasework" / "pg").mkdir(parents=True)
    (tmp_path / "leasework" / "pg" / "link.py").touch()
    page = tmp_path / "page.md"
    page.write_text(
        "See `pg/link.py`, `shop/a.py`, `sql/job/*.sql`, http://x/y/z.py and pg/timer.py."
    )
    assert dangling(page, tmp_path) == ["page.md: pg/timer.py"]
