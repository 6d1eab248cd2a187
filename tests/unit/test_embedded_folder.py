"""Where the embedded server keeps its data, if nobody says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leasework.embedded import folder
from leasework.errors import EmbeddedError


def test_an_account_without_a_home_is_told_to_name_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HOME", "LEASEWORK_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("getuid", "geteuid"):
        monkeypatch.setattr(os, name, lambda: 543210)
    with pytest.raises(EmbeddedError, match=r"no home folder.*\.local/state.*Set LEASEWORK_HOME"):
        folder.default_folder("18")
    monkeypatch.setenv("LEASEWORK_HOME", "/data")
    assert folder.default_folder("18") == Path("/data/pg18")
