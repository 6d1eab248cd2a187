"""Adds the site in build/site to the branch that has the sites of all versions, and pushes it.

python -m scripts.site_versions                   # as `dev`
python -m scripts.site_versions --tag v0.1.0      # as 0.1, and as `latest` if it is the newest

Each minor version has a folder, which its patches replace. `versions.json` is what the theme's menu
of versions reads; its form is that of mike (https://github.com/jimporter/mike).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
DEV, LATEST = "dev", "latest"
_LEAD = '<!doctype html><meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">{0}</a>\n'


def folder_of(tag: str) -> str:
    """The folder of a tag: ``v0.1.3`` is in ``0.1``."""
    if not (found := re.fullmatch(r"v(\d+\.\d+)\.\d+", tag)):
        raise SystemExit(f"{tag} is no tag of a release, such as v0.1.0")
    return found[1]


def order(folder: str) -> list[int]:
    """Newest last; ``dev`` is newer than all."""
    return [sys.maxsize] if folder == DEV else [int(part) for part in folder.split(".")]


def add(site: Path, folder: Path, tag: str = "") -> None:
    """Put a site into the folder of all sites, in place of the one that was there."""
    name = folder_of(tag) if tag else DEV
    file = folder / "versions.json"
    known = json.loads(file.read_text("utf-8")) if file.exists() else []
    titles = {each["version"]: each["title"] for each in known} | {name: tag[1:] or DEV}
    names = sorted(titles, key=order, reverse=True)
    newest = next((each for each in names if each != DEV), "")
    places = [name, LATEST] if name == newest else [name]
    for place in places:
        shutil.rmtree(folder / place, ignore_errors=True)
        shutil.copytree(site, folder / place)
    listed = [
        {"version": each, "title": titles[each], "aliases": [LATEST] if each == newest else []}
        for each in names
    ]
    file.write_text(json.dumps(listed, indent=2) + "\n", "utf-8")
    (folder / "index.html").write_text(_LEAD.format(LATEST if newest else DEV), "utf-8")
    (folder / ".nojekyll").touch()


def publish(repository: Path, site: Path, branch: str, tag: str = "") -> None:
    """Add the site to the branch of ``origin``, in one commit, without a checkout of it."""

    def git(*words: str, **environ: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=repository, env={**os.environ, **environ}, check=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        return done.stdout.decode().strip()

    parents = []
    with tempfile.TemporaryDirectory(prefix="leasework-site-") as temporary:
        folder, index = Path(temporary, "site"), str(Path(temporary, "index"))
        folder.mkdir()
        there = {"GIT_INDEX_FILE": index, "GIT_WORK_TREE": str(folder)}
        if git("ls-remote", "--heads", "origin", branch):
            git("fetch", "--depth=1", "origin", branch)
            parents = ["-p", git("rev-parse", "FETCH_HEAD")]
            git("read-tree", "FETCH_HEAD", **there)
            git("checkout-index", "--all", f"--prefix={folder}/", **there)
        add(site, folder, tag)
        git("add", "--all", "--force", ".", **there)
        tree = git("write-tree", **there)
        commit = git("commit-tree", tree, *parents, "-m", f"The site of {tag or DEV}")
        git("push", "origin", f"{commit}:refs/heads/{branch}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.site_versions")
    parser.add_argument("--tag", default="", help="the tag of the release that the site describes")
    parser.add_argument("--branch", default="gh-pages")
    given = parser.parse_args()
    publish(ROOT, SITE, given.branch, given.tag)


if __name__ == "__main__":
    main()
