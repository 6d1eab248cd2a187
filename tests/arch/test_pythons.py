"""Which Pythons are tested: what the distributions say, and which interpreters are found."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.arch import tree

MAKE_VENV = tree.ROOT / "scripts" / "make-venv"
FAKE = """#!/bin/sh
case "$*" in
*"-m venv"*) mkdir -p "$4" ;;
*version_info\\[:2\\]*) echo {minor} ;;
*version*) echo {minor}.7 ;;
esac
"""
REFUSING_SHIM = "#!/bin/sh\nexit 127\n"


def supported() -> list[str]:
    (named,) = re.findall(r'^TESTED="(.*)"$', MAKE_VENV.read_text(), re.MULTILINE)
    return named.split()


@pytest.mark.parametrize("project", ["pyproject.toml", "lab/pyproject.toml"])
def test_the_classifiers_name_the_versions_that_are_tested(project: str):
    known = tomllib.loads((tree.ROOT / project).read_text())["project"]["classifiers"]
    prefix = "Programming Language :: Python :: 3."
    assert [f"3.{c.removeprefix(prefix)}" for c in known if c.startswith(prefix)] == supported()


class Machine:
    """A tree of its own, and a user with these interpreters."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "tree" / "scripts").mkdir(parents=True)
        self.script = shutil.copy(MAKE_VENV, home / "tree" / "scripts")

    def has(self, path: str, text: str) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def make_venv(self, *arguments: str) -> str:
        for tool in ("dirname", "mkdir", "touch", "sh"):
            found = shutil.which(tool)
            assert found
            link = self.home / "bin" / tool
            link.parent.mkdir(exist_ok=True)
            if not link.exists():
                link.symlink_to(found)
        env = {"HOME": str(self.home), "PATH": str(self.home / "bin")}
        done = subprocess.run(
            [self.script, *arguments], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_versions_are_found_on_path_and_where_pyenv_has_them_though_its_shim_refuses(
    machine: Machine,
):
    machine.has("bin/python3.11", FAKE.format(minor="3.11"))
    machine.has("bin/python3.13", REFUSING_SHIM)
    machine.has(".pyenv/versions/3.13.7/bin/python3", FAKE.format(minor="3.13"))
    machine.has(".pyenv/versions/3.10.7/bin/python3", FAKE.format(minor="3.10"))
    assert machine.make_venv("--others").split() == ["3.11", "3.13"]
    assert "/.pyenv/versions/3.13.7/bin/python3 (" in machine.make_venv("3.13")
    assert (machine.home / "tree" / ".venv-3.13").is_dir()


def test_a_release_is_tried_on_all_that_are_found(machine: Machine):
    machine.has("bin/python3.11", FAKE.format(minor="3.11"))
    machine.has(".pyenv/versions/3.13.7/bin/python3", FAKE.format(minor="3.13"))
    first, second = machine.make_venv("--found").splitlines()
    assert first == "3.11 python3.11"
    assert second == f"3.13 {machine.home}/.pyenv/versions/3.13.7/bin/python3"


def test_the_venv_is_made_with_what_the_user_calls_python3(machine: Machine):
    machine.has("bin/python3.11", FAKE.format(minor="3.11"))
    machine.has("bin/python3", FAKE.format(minor="3.12"))
    assert "Making .venv with python3 (" in machine.make_venv()
