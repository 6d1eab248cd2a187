"""The branch of all sites: each version has its folder, and none harms another."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from scripts.site_versions import add, folder_of, publish

WHO = ["-c", "user.name=t", "-c", "user.email=t@example.org"]


def site(folder: Path, text: str) -> Path:
    (folder / "site" / "howto").mkdir(parents=True, exist_ok=True)
    for name in ("index.html", f"howto/{text}.html"):
        (folder / "site" / name).write_text(text)
    return folder / "site"


def versions(folder: Path) -> list[tuple[str, str, list[str]]]:
    listed = json.loads((folder / "versions.json").read_text())
    return [(each["version"], each["title"], each["aliases"]) for each in listed]


@pytest.fixture
def add_all(tmp_path):
    """Adds sites to one folder, and returns it. The text of each site is its tag."""
    folder = tmp_path / "all"
    folder.mkdir()

    def of(*tags: str) -> Path:
        for number, tag in enumerate(tags):
            (tmp_path / str(number)).mkdir()
            add(site(tmp_path / str(number), tag or "dev"), folder, tag)
        return folder

    return of


def test_before_the_first_release_the_address_leads_to_dev(add_all):
    folder = add_all("")
    assert versions(folder) == [("dev", "dev", [])]
    assert "url=dev/" in (folder / "index.html").read_text()


def test_the_newest_version_is_latest_whatever_is_published_last(add_all):
    folder = add_all("v0.9.0", "v0.10.0", "", "v0.9.1")
    assert versions(folder) == [
        ("dev", "dev", []), ("0.10", "0.10.0", ["latest"]), ("0.9", "0.9.1", [])
    ]  # fmt: skip
    assert (folder / "latest" / "index.html").read_text() == "v0.10.0"
    assert (folder / "0.9" / "index.html").read_text() == "v0.9.1"
    assert "url=latest/" in (folder / "index.html").read_text()


def test_a_page_that_is_gone_does_not_stay(add_all):
    folder = add_all("v0.1.0", "v0.1.1")
    for place in ("0.1", "latest"):
        assert [page.name for page in (folder / place / "howto").iterdir()] == ["v0.1.1.html"]


@pytest.mark.parametrize("tag", ["0.1.0", "v0.1", "v0.1.0rc1", "main"])
def test_what_is_no_tag_of_a_release_is_refused(tag):
    with pytest.raises(SystemExit, match="no tag"):
        folder_of(tag)


def test_each_site_is_one_commit_on_the_branch_and_the_checkout_is_left_alone(tmp_path):
    def git(*words: str, at: str = "here") -> str:
        return subprocess.check_output(["git", *WHO, *words], cwd=tmp_path / at, text=True)

    (tmp_path / "here").mkdir()
    (tmp_path / "far.git").mkdir()
    git("init", "--quiet", "--bare", at="far.git")
    git("init", "--quiet")
    git("remote", "add", "origin", str(tmp_path / "far.git"))
    git("config", "user.name", "t")
    git("config", "user.email", "t@example.org")
    (tmp_path / "here" / "code").write_text("code")
    git("add", "code")
    git("commit", "--quiet", "--message", "code")
    for tag in ("", "v0.1.0", "v0.2.0"):
        publish(tmp_path / "here", site(tmp_path / f"of-{tag}", tag or "dev"), "gh-pages", tag)
    files = git("ls-tree", "-r", "--name-only", "gh-pages", at="far.git").split()
    assert {"0.1/index.html", "0.2/index.html", "dev/index.html", "versions.json"} <= {*files}
    assert "code" not in files
    assert git("show", "gh-pages:latest/index.html", at="far.git") == "v0.2.0"
    assert len(git("log", "--format=%s", "gh-pages", at="far.git").splitlines()) == 3
    assert git("status", "--porcelain") == ""
    assert [path.name for path in (tmp_path / "here").iterdir() if path.name != ".git"] == ["code"]
