"""The install lines of the pages, run as they are.

Nothing of leasework is on an index yet, and anybody may take a free name there. So each line
installs leasework from a clone, and the index that these lines see has none of our names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.arch import tree

PAGES = [*tree.ROOT.glob("*.md"), *sorted((tree.ROOT / "docs").rglob("*.md"))]
PAGES += [tree.ROOT / "lab" / "README.md", *sorted((tree.ROOT / "examples").rglob("*.md"))]
OURS = {"leasework", "leasework-lab"}
_LINE = re.compile(r"^(?:\$ )?(pip install .*?)(?:\s+#.*)?$|`(pip install [^`\n]*)`", re.M)
_REQUIREMENT = re.compile(r"(?<![\w./-])(?P<name>[\w.-]+)(?:\[[^\]]*\])?(?=['\"\s]|$)")


def install_lines(text: str) -> list[str]:
    """Without the lines for contributors, which ``make test`` runs in the clone itself."""
    found = [one or two for one, two in _LINE.findall(text)]
    return [line for line in found if " -e " not in line]


def of_all_pages() -> list[str]:
    return sorted({line for page in PAGES for line in install_lines(page.read_text("utf-8"))})


def from_an_index(line: str) -> set[str]:
    """Our names that this line would look up in an index."""
    words = line.removeprefix("pip install ")
    return {m["name"].lower().replace("_", "-") for m in _REQUIREMENT.finditer(words)} & OURS


def test_lines_are_found_in_blocks_and_in_sentences():
    page = "```sh\npip install 'a[b]' c    # d\n```\n$ pip install e\nSee (`pip install f`).\n"
    assert install_lines(page) == ["pip install 'a[b]' c", "pip install e", "pip install f"]
    assert from_an_index("pip install 'leasework[web]' x") == {"leasework"}
    assert from_an_index("pip install leasework-lab") == {"leasework-lab"}
    assert not from_an_index("pip install '../leasework[web]' ../leasework/lab django")


def test_no_line_takes_our_names_from_an_index():
    lines = of_all_pages()
    assert len(lines) > 10
    assert [line for line in lines if from_an_index(line)] == []


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """The tracked files of this tree, in a folder ``leasework`` as the pages expect it."""
    folder = tmp_path_factory.mktemp("install") / "leasework"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=tree.ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (tree.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree.ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def index() -> Iterator[tuple[str, list[str]]]:
    """An index without our names, which sends pip on for all others; what pip asked."""
    program = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    usual = _output(sys.executable, "-m", "pip", "config", "get", "global.index-url")
    usual = usual or _output(sys.executable, "-c", program)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/")
            asked.append(name)
            self.send_response(404 if name in OURS else 307)
            self.send_header("Location", f"{usual.rstrip('/')}/{name}/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


LINES = [line for line in of_all_pages() if "leasework" in line]
OTHERS = [line for line in of_all_pages() if "leasework" not in line]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lines", [*([line] for line in LINES), OTHERS], ids=lambda lines: lines[0])
def test_a_line_installs_from_the_clone_into_an_empty_environment(lines, clone, index, tmp_path):
    url, asked = index
    project = clone.parent / tmp_path.name
    python = project / ".venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(project / ".venv")], check=True)
    here = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    here |= {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "PIP_INDEX_URL": url}
    here |= {"PIP_NO_COMPILE": "1"}  # only for speed
    for line in lines:
        command = ["sh", "-c", line]
        done = subprocess.run(command, cwd=project, env=here, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not OURS & set(asked)
    expected = OURS if "/lab" in lines[0] else OURS - {"leasework-lab"}
    for name in expected if "leasework" in lines[0] else ():
        code = f"import importlib.metadata as m, {name.replace('-', '_')}"
        code += f"; print(m.distribution({name!r}).read_text('direct_url.json'))"
        assert json.loads(_output(str(python), "-c", code))["url"].startswith(clone.as_uri())
    shutil.rmtree(project)
