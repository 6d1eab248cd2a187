"""`make release` on one Python: two builds with the same bytes, checked, installed and tried."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from leasework.version import VERSION
from scripts import release
from tests.arch import tree


@pytest.mark.timeout(1500)
def test_the_distributions_are_built_checked_and_tried(tmp_path, monkeypatch, capsys):
    this = "{}.{}".format(*sys.version_info)
    monkeypatch.setattr(release, "WORK", tmp_path / "work")
    monkeypatch.setattr(release, "DIST", tmp_path / "dist")
    code = release.main(["--dirty", "--python", this])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "4 files, twice with the same bytes" in told.out
    assert f"Python {this}: leasework {VERSION}, the core alone" in told.out
    dist = tmp_path / "dist"
    packages = sorted(path.name for path in (dist / "packages").iterdir())
    assert packages == [
        f"leasework-{VERSION}-py3-none-any.whl",
        f"leasework-{VERSION}.tar.gz",
        f"leasework_lab-{VERSION}-py3-none-any.whl",
        f"leasework_lab-{VERSION}.tar.gz",
    ]
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
    for name in ("leasework", "leasework-lab"):
        document = json.loads((dist / f"{name}-{VERSION}.cdx.json").read_text())
        assert document["bomFormat"] == "CycloneDX"
        about = document["metadata"]["component"]
        assert (about["name"], about["version"]) == (name, VERSION)
        assert {"msgspec", "psycopg"} <= {one["name"] for one in document["components"]}
        assert str(tree.ROOT) not in json.dumps(document)
