"""The Python code of the pages calls leasework as it is: names, arguments and options exist."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.arch import tree

DOCS = tree.ROOT / "docs"
PAGES = [tree.ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LEFT_OUT = ("reference/api.md", "adr/")
"""The first is made from docstrings, which test_api checks. The others tell of the past."""
BLOCK = re.compile(r"^( *)```python[^\n]*\n(.*?)^\1```", re.M | re.S)
BEFORE = re.compile(r"^#+ Before\n.*?(?=^#+ )", re.M | re.S)
"""Code for another system, which test_before runs."""
FRAGMENTS = (
    "name-defined", "no-redef", "empty-body", "import-untyped", "misc", "return", "assignment",
    "has-type", "unused-coroutine", "no-untyped-def", "untyped-decorator", "no-any-return",
    "type-arg", "no-untyped-call",
)  # fmt: skip
"""mypy's errors about what a page may do: leave out parts of an application, and show the same
thing in several ways under one name."""


def code_of(text: str) -> str:
    """The blocks of one page, as the body of one function: some of them await."""
    text = BEFORE.sub("", text)
    blocks = [textwrap.dedent(found[2]).replace("…", "...") for found in BLOCK.finditer(text)]
    lines = "\n\n".join(blocks).replace("from __future__ import annotations\n", "")
    return f"async def _blocks() -> None:\n{textwrap.indent(lines, '    ')}\n    pass\n"


def checked(folder: Path) -> str:
    lacking = [word for code in FRAGMENTS for word in ("--disable-error-code", code)]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *lacking]
    command += ["--ignore-missing-imports", "--cache-dir=.mypy_cache/pages", str(folder)]
    done = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{re.sub(r'[^a-z]', '_', name.lower())}.py").write_text(code_of(text), "utf-8")


@pytest.mark.timeout(300)
def test_the_code_of_every_page_fits_the_library(tmp_path: Path) -> None:
    pages = 0
    for page in PAGES:
        name = page.relative_to(tree.ROOT).as_posix()
        text = page.read_text("utf-8")
        if BLOCK.search(text) and not any(part in name for part in LEFT_OUT):
            write(tmp_path, name, text)
            pages += 1
    assert pages > 20
    assert checked(tmp_path) == ""


@pytest.mark.timeout(300)
def test_a_wrong_call_on_a_page_is_caught(tmp_path: Path) -> None:
    wrong = """
```python
from leasework import App
app = App()

@app.task
async def send(user_id: int) -> None: ...

await send.using(uniqe="a").enqueue(user_id=1)
await send.enqueue(user=1)
app.perodic("0 3 * * *")
```
"""
    write(tmp_path, "wrong.md", wrong)
    said = checked(tmp_path)
    for what in ("uniqe", "user", "perodic"):
        assert f'"{what}"' in said
