"""Builds the two distributions twice, compares and checks them, and writes dist/.

python -m scripts.release                     # all supported Pythons that are found
python -m scripts.release --python 3.12       # one of them; repeatable
python -m scripts.release --tag v0.1.0        # also: the tag, the version and the changelog agree
python -m scripts.release --dirty             # with the uncommitted changes of tracked files

dist/packages has what an index takes, and nothing else. Beside it are SHA256SUMS and one list of
components (CycloneDX) for each distribution.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scripts.release_smoke import smoke

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "release"
DIST = ROOT / "dist"
PROJECTS = {"leasework": ".", "leasework_lab": "lab"}
"""The import package of each distribution, and its folder."""
SBOM_EXTRAS = {
    "leasework": "[embedded,web,apscheduler,prometheus,otel]",
    "leasework_lab": "[embedded,web]",
}
"""The extras of the core whose packages the list of components has."""


class Refused(Exception):
    """What is not fit to be released, in words."""


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run a command and return its output; raises Refused with all that it printed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**clean, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise Refused(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def version() -> str:
    """The one version, which both distributions have."""
    text = (ROOT / "leasework" / "version.py").read_text("utf-8")
    (found,) = re.findall(r'^VERSION = "(.+)"$', text, re.M)
    return str(found)


def project(folder: str) -> dict[str, object]:
    loaded = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))
    return dict(loaded["project"])


def disagreements(tag: str | None) -> list[str]:
    """Where the version, the laboratory's version and need, the changelog and the tag disagree."""
    is_now = version()
    lab = project("lab")
    wrong = []
    if "version" in project(".") or project(".")["dynamic"] != ["version"]:
        wrong.append("pyproject.toml has a version of its own beside leasework/version.py")
    if lab["version"] != is_now:
        wrong.append(f"leasework-lab is {lab['version']}, leasework is {is_now}")
    if lab["dependencies"] != [f"leasework[embedded,web]=={is_now}"]:
        wrong.append(f"leasework-lab needs {lab['dependencies']}, leasework is {is_now}")
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(rf"^## {re.escape(is_now)}( .*)?$", changes, re.M)
    if heading is None:
        wrong.append(f"CHANGELOG.md has no section {is_now}")
    elif tag and "unreleased" in (heading[1] or ""):
        wrong.append(f"CHANGELOG.md says that {is_now} is unreleased: write the date")
    if tag and tag != f"v{is_now}":
        wrong.append(f"the tag is {tag}, the version asks for v{is_now}")
    if tag and (newest := unfrozen()):
        wrong.append(f"nothing is frozen of migration {newest}: python -m scripts.freeze_schema")
    return wrong


def unfrozen() -> int:
    """The newest migration, if tests/upgrade/released has no file with it; 0 otherwise."""
    migrations = (ROOT / "leasework" / "pg" / "sql" / "migrations").glob("[0-9]*.sql")
    newest = max(int(path.name[:4]) for path in migrations)
    for file in (ROOT / "tests" / "upgrade" / "released").glob("*.sql"):
        with file.open(encoding="utf-8") as lines:
            if json.loads(lines.readline().removeprefix("-- "))["migrations"] == newest:
                return 0
    return newest


def export(to: Path, dirty: bool) -> None:
    """Copy the tracked files, so that nothing else of this folder gets into a distribution."""
    if not dirty and (changed := run("git", "status", "--porcelain")):
        raise Refused(f"there are uncommitted changes (--dirty builds with them):\n{changed}")
    for name in filter(None, run("git", "ls-files", "-z").split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


def make_tools() -> Path:
    """A venv with the tools of the dependency group ``release``; returns its Python."""
    loaded = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = loaded["dependency-groups"]["release"]
    venv = WORK / "tools"
    python, stamp = venv / "bin" / "python", venv / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != wanted:
        run(sys.executable, "-m", "venv", "--clear", venv)
        run(python, "-m", "pip", "install", "-q", *wanted)
        stamp.write_text(json.dumps(wanted))
    return python


def build(tools: Path, dirty: bool) -> list[Path]:
    """Build from two copies in different folders, time zones and hash seeds; the files must have
    the same bytes. Each wheel is built from its source distribution."""
    when = run("git", "log", "-1", "--format=%ct").strip()
    rounds: list[dict[str, Path]] = []
    for number, zone in enumerate(("UTC", "Asia/Seoul"), 1):
        source, out = WORK / f"tree{number}", WORK / f"out{number}"
        for folder in (source, out):
            shutil.rmtree(folder, ignore_errors=True)
        export(source, dirty)
        env = {"SOURCE_DATE_EPOCH": when, "TZ": zone, "PYTHONHASHSEED": str(number)}
        for folder_name in PROJECTS.values():
            command = ["-m", "build", "--no-isolation", "--outdir", out, source / folder_name]
            run(tools, *command, env=env)
        rounds.append({path.name: path for path in sorted(out.iterdir())})
    first, second = rounds
    if first.keys() != second.keys():
        raise Refused(f"two builds made different files: {sorted(first)}, {sorted(second)}")
    differ = [name for name in first if digest(first[name]) != digest(second[name])]
    if differ:
        raise Refused(f"two builds of one commit differ: {', '.join(differ)}")
    return list(first.values())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names_in(path: Path) -> list[str]:
    """The files of a wheel, or of a source distribution without its top folder."""
    if path.suffix == ".whl":
        return [name for name in zipfile.ZipFile(path).namelist() if not name.endswith("/")]
    with tarfile.open(path) as tar:
        return [member.name.partition("/")[2] for member in tar if member.isfile()]


def wrong_contents(path: Path, names: Iterable[str], is_version: str) -> list[str]:
    """What a distribution lacks, and what it must not have."""
    names = set(names)
    package = path.name.split("-")[0]
    (other,) = PROJECTS.keys() - {package}
    info = f"{package}-{is_version}.dist-info/"
    if path.suffix == ".whl":
        needed = {f"{package}/py.typed", f"{info}licenses/LICENSE", f"{info}METADATA"}
        allowed = (f"{package}/", info)
        extra = [name for name in names if not name.startswith(allowed)]
    else:
        needed = {f"{package}/py.typed", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO"}
        allowed = (f"{package}/",)
        single = {*needed, "CHANGELOG.md", ".gitignore"}
        extra = [name for name in names if not name.startswith(allowed) and name not in single]
    bad = re.compile(rf"(^|/)(tests?|{other}|__pycache__)/|(^|/)test_\w+\.py$|\.pyc$|(^|/)\.env")
    wrong = [f"lacks {name}" for name in sorted(needed - names)]
    wrong += [f"has {name}" for name in sorted({*extra, *filter(bad.search, names)})]
    if f"{package}-{is_version}" not in path.name:
        wrong.append(f"is not of version {is_version}")
    return [f"{path.name} {what}" for what in wrong]


def check(tools: Path, files: Sequence[Path]) -> None:
    """Metadata, descriptions and contents."""
    is_version = version()
    kinds = sorted((path.name.split("-")[0], path.suffix) for path in files)
    if kinds != sorted((name, kind) for name in PROJECTS for kind in (".gz", ".whl")):
        raise Refused(f"not a wheel and a source distribution of each: {kinds}")
    wrong = [line for path in files for line in wrong_contents(path, names_in(path), is_version)]
    if wrong:
        raise Refused("\n".join(wrong))
    print(run(tools, "-m", "twine", "--no-color", "check", "--strict", *files), end="")
    wheels = [path for path in files if path.suffix == ".whl"]
    # W002: files with the same bytes, such as empty ones. W004: Django's migrations have numbers.
    print(run(tools.parent / "check-wheel-contents", "--ignore", "W002,W004", *wheels), end="")


def list_components(tools: Path, files: Sequence[Path]) -> dict[str, str]:
    """One CycloneDX document for each distribution: what an installation of today consists of."""
    wheels = {path.name.split("-")[0]: path for path in files if path.suffix == ".whl"}
    made = {}
    for package, folder in PROJECTS.items():
        venv = WORK / f"components-{package}"
        run(sys.executable, "-m", "venv", "--clear", "--without-pip", venv)
        python = venv / "bin" / "python"
        wanted = [f"{wheels['leasework']}{SBOM_EXTRAS[package]}", str(wheels[package])]
        install = ["-m", "pip", "--python", python, "install", "-q", "--no-compile"]
        run(tools, *install, *dict.fromkeys(wanted if package != "leasework" else wanted[:1]))
        for told in venv.rglob("direct_url.json"):  # a path of this machine
            told.unlink()
        lines = [f'[project]\nname = "{package.replace("_", "-")}"\nversion = "{version()}"']
        lines.append(f"description = {json.dumps(project(folder)['description'])}")
        lines.append('license = "Apache-2.0"\n')
        about = WORK / f"about-{package}.toml"
        about.write_text("\n".join(lines))
        out = WORK / f"{package.replace('_', '-')}-{version()}.cdx.json"
        command = ["-m", "cyclonedx_py", "environment", "--pyproject", about, "--of", "JSON"]
        command += ["--mc-type", "library", "--output-reproducible", "-o", out, python]
        run(tools, *command)
        made[out.name] = out.read_text("utf-8")
    for name, text in made.items():
        if wrong := wrong_components(json.loads(text), text):
            raise Refused(f"{name}: {wrong}")
    return made


def wrong_components(document: Mapping[str, object], text: str) -> list[str]:
    """What a list of components lacks, or says of this machine."""
    components = document["components"]
    assert isinstance(components, list)
    names = {component["name"] for component in components}
    wrong = [f"lacks {name}" for name in ("msgspec", "psycopg", "click") if name not in names]
    wrong += [f"has {name}" for name in ("pip", "pytest", "twine") if name in names]
    wrong += [f"names {what}" for what in (str(ROOT), "file://", "127.0.0.1") if what in text]
    return wrong


def write(files: Sequence[Path], components: Mapping[str, str]) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    (DIST / "packages").mkdir(parents=True)
    for path in files:
        shutil.copyfile(path, DIST / "packages" / path.name)
    for name, text in components.items():
        (DIST / name).write_text(text, "utf-8")
    made = sorted(path for path in DIST.rglob("*") if path.is_file())
    sums = [f"{digest(path)}  {path.relative_to(DIST).as_posix()}\n" for path in made]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    for left in WORK.iterdir():
        if left.name != "tools":
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def pythons(asked: Sequence[str]) -> dict[str, str]:
    """Version → interpreter, of those that are asked for, or of all supported ones found."""
    finder = ROOT / "scripts" / "make-venv"
    found = dict(line.split(" ", 1) for line in run(finder, "--found").splitlines())
    if lacking := set(asked) - found.keys():
        raise Refused(f"found no Python {', '.join(sorted(lacking))}")
    return {name: path for name, path in found.items() if not asked or name in asked}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build and check the distributions.")
    parser.add_argument("--python", action="append", default=[], metavar="3.12")
    parser.add_argument("--tag", help="the tag of this release, such as v0.1.0")
    parser.add_argument("--dirty", action="store_true", help="build with uncommitted changes")
    given = parser.parse_args(words)
    try:
        if wrong := disagreements(given.tag):
            raise Refused("\n".join(wrong))
        chosen = pythons(given.python)
        tools = make_tools()
        files = build(tools, given.dirty)
        print(f"{len(files)} files, twice with the same bytes")
        check(tools, files)
        wheels = {path.name.split("-")[0]: path for path in files if path.suffix == ".whl"}
        for name, interpreter in chosen.items():
            print(f"Python {name}: {smoke(interpreter, wheels, version(), WORK, run)}", flush=True)
        write(files, list_components(tools, files))
    except Refused as refused:
        print(f"Not fit for release: {refused}", file=sys.stderr)
        return 1
    print((DIST / "SHA256SUMS").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
