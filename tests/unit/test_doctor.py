"""The checks of the set-up, without a database."""

from __future__ import annotations

from typing import Any

import pytest

from leasework import App
from leasework.errors import ConfigError, PermissionDenied
from leasework.store.setup import Setup, Tokens
from leasework.watch.checks import setup_problems
from leasework.watch.facts import Facts
from leasework.watch.inspector import Inspector

SERVER: dict[str, Any] = {
    "version": 180000, "login": "Ann", "database": "shop", "pooled": False,
    "settings": {
        "synchronous_commit": "on", "fsync": "on", "full_page_writes": "on", "autovacuum": "on",
        "statement_timeout": "0",
    },
}  # fmt: skip
LIFT = "leasework schema lift-tokens"


def sound(**changed: Any) -> Setup:
    fields: dict[str, Any] = {
        "schema": "leasework",
        "role": "worker",
        "server": SERVER,
        "tokens": Tokens(1, 8, 7, False),
    }
    return Setup(**{**fields, **changed})


def server(settings: dict[str, str], **changed: Any) -> Setup:
    return sound(server={**SERVER, **changed, "settings": {**SERVER["settings"], **settings}})


def levels(setup: Setup) -> dict[str, str]:
    return {finding.kind: finding.level for finding in setup_problems(setup)}


def test_nothing_is_said_of_a_sound_set_up():
    assert setup_problems(sound()) == []


def test_a_missing_privilege_is_named_with_the_group_that_has_it():
    (finding,) = setup_problems(sound(denied=["insert on node"]))
    assert finding.kind == "privileges" and "insert on node" in finding.sentence
    assert 'grant leasework_worker to "Ann"' in finding.do


def test_a_pooler_is_a_note():
    assert levels(server({}, pooled=True)) == {"pooler": "note"}


@pytest.mark.parametrize(
    ("settings", "typed"),
    [
        ({"synchronous_commit": "local"}, "alter role \"Ann\" set synchronous_commit = 'on'"),
        ({"fsync": "off"}, "alter system set fsync = on"),
        ({"autovacuum": "off"}, "alter system set autovacuum = on"),
    ],
)
def test_a_setting_that_does_harm_is_told_with_its_fix(settings, typed):
    (finding,) = setup_problems(server(settings))
    assert finding.kind == "server_settings" and finding.level == "wrong"
    assert typed in finding.do


def test_timeouts_of_a_role_are_told_only_behind_a_pooler():
    short = {"statement_timeout": "1900", "transaction_timeout": "2000"}
    assert levels(server(short)) == {}
    told = [f.sentence for f in setup_problems(server(short, pooled=True)) if not f.info]
    assert len(told) == 1 and told[0].startswith("statement_timeout is 1900 ms")


@pytest.mark.parametrize(
    "tokens",
    [
        Tokens(1, None, 7, False),
        Tokens(1, 7, 7, False),
        Tokens(1, 8, 7, True),
    ],
)
def test_tokens_or_ids_that_would_come_twice_are_told(tokens):
    (finding,) = setup_problems(sound(tokens=tokens))
    assert (finding.kind, finding.level, finding.do) == ("tokens", "wrong", LIFT)


def test_a_server_that_hides_its_timeline_is_a_note_that_says_what_is_lost():
    (finding,) = setup_problems(sound(tokens=Tokens(None, 8, 7, False)))
    assert (finding.kind, finding.level) == ("tokens", "note")
    assert "failover that loses commits" in finding.sentence and LIFT in finding.do


async def test_a_set_up_that_cannot_be_read_is_a_problem_beside_a_note(tmp_path, monkeypatch):
    async def facts(self: Inspector) -> Facts:
        raise PermissionDenied("no")

    monkeypatch.setattr(Inspector, "facts", facts)
    app = App(f"host={tmp_path} dbname=x user=y")
    found = await app.diagnose(role="enqueue")
    assert [finding.level for finding in found] == ["wrong", "note"]
    assert found[0].kind == "database_away"
    await app.close()


async def test_an_unknown_role_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no such role.*Did you mean 'worker'"):
        await App("postgresql://").diagnose(role="workr")  # type: ignore[arg-type]
