"""The doctor's judgement, without a database: clocks, links, slots, and what it recommends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leasework import App
from leasework.config import Settings, Timings
from leasework.errors import ConfigError, UnsafeServer
from leasework.pg.schema.examination import compare
from leasework.ports import TableView
from leasework.ports.doctor import TRANSACTION, Clocks, Examination, Gaps, Tokens
from leasework.watch.advice import recommended
from leasework.watch.checks import judge

SETTINGS = Settings(dsn="postgresql://x", schema="leasework")
SERVER: dict[str, Any] = {
    "version": 180000, "role": "Ann", "database": "shop", "superuser": False,
    "recovering": False, "read_only": False, "encrypted": True, "local": False,
    "used": 5, "most": 100, "role_used": 1, "role_most": -1, "database_used": 5,
    "database_most": -1,
}  # fmt: skip
GOOD = {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on", "autovacuum": "on"}
TCP = {"keepalives": 1, "user_timeout_ms": 2000, "idle": 1, "interval": 1, "count": 2}


def sound(**changed: Any) -> Examination:
    fields: dict[str, Any] = {
        "own": SETTINGS,
        "role": "worker",
        "server": dict(SERVER),
        "settings": {**GOOD, "tcp_keepalives_idle": "60"},
        "listen_seconds": 0.001,
        "tcp": dict(TCP),
        "denied": {"worker": []},
        "schema_number": 1,
        "tokens": Tokens(1, 0, 1, 8, 7),
        "clocks": Clocks([0.001], rate_error=1e-4, watched=5.0),
    }
    return Examination(**{**fields, **changed})


def worst(found: Examination) -> dict[str, str]:
    return {f.kind: f.do for f in judge(found) if f.level == "wrong"}


def test_what_is_sound_is_found_sound():
    assert worst(sound()) == {}
    assert {f.level for f in judge(sound())} == {"ok"}


@pytest.mark.parametrize("listen", [True, False])
def test_the_connections_that_a_node_holds_are_told_apart_from_those_on_demand(listen):
    settings = replace(SETTINGS, listen=listen, work_connections=2, user_connections=5)
    [finding] = [f for f in judge(sound(own=settings)) if f.kind == "connections"]
    assert finding.sentence.endswith("a node holds 3, and up to 7 more on demand")


def looks(seconds: float, offset: Any, trip: float = 0.001) -> list[Any]:
    """A look each 0.2 s at a server whose clock is ``offset(t)`` ahead."""
    times = [n * 0.2 for n in range(int(seconds / 0.2))]
    return [(t, t + trip, 1e9 + t, 1e9 + t + trip / 2 + offset(t)) for t in times]


def test_an_offset_is_measured_to_half_a_round_trip():
    clocks = compare(looks(2, lambda t: 3.0))
    assert clocks.offset == pytest.approx(3.0, abs=0.001) and clocks.offset_error == pytest.approx(
        0.0005, abs=1e-5
    )
    assert clocks.jump == 0 and abs(clocks.rate) < 1e-6
    levels = {f.kind: f.level for f in judge(sound(clocks=clocks))}
    assert levels["clock"] == "note"
    assert "clock" in worst(sound(clocks=compare(looks(2, lambda t: -3600.0))))


@pytest.mark.parametrize("step", [1.0, -1.0])
def test_a_step_of_the_clock_while_it_is_watched_is_seen(step):
    clocks = compare(looks(2, lambda t: step if t >= 1 else 0.0))
    assert clocks.jump == pytest.approx(step, abs=0.002)
    assert "clock_step" in worst(sound(clocks=clocks))


def test_a_clock_that_runs_too_fast_is_seen_and_a_sound_one_is_not_blamed_for_a_slow_network():
    fast = compare(looks(5, lambda t: 0.01 * t))
    assert fast.rate == pytest.approx(0.01, rel=0.05)
    assert "clock_rate" in worst(sound(clocks=fast))
    slow_link = compare(looks(1, lambda t: 0.0, trip=0.15))
    assert slow_link.rate_error > 0.1
    assert "clock_rate" not in worst(sound(clocks=slow_link))


def test_a_dsn_that_waits_longer_for_a_dead_link_is_told():
    assert "keepalives" in worst(sound(tcp={**TCP, "user_timeout_ms": 0}))
    assert "keepalives" in worst(sound(tcp={**TCP, "keepalives": 0}))


def test_a_server_that_hides_its_timeline_is_a_note_that_says_what_is_lost():
    found = judge(sound(tokens=Tokens(1, 0, None, 8, 7)))
    [told] = [f for f in found if f.kind == "timeline"]
    assert told.level == "note" and "failover that loses commits" in told.sentence
    assert "lift-tokens" in told.do


@pytest.mark.parametrize(
    "seen, added, server, number, claims",
    [(1, 0, 1, 1, 7), (3, 0, 3, 8, (2 << 32) + 9), (1, 0, None, 7, 7)],
)
def test_tokens_that_would_come_twice_are_told(seen, added, server, number, claims):
    found = sound(tokens=Tokens(seen, added, server, number, claims))
    assert worst(found)["tokens"] == "leasework schema lift-tokens"


@pytest.mark.parametrize(
    "seen, added, server, number, claims",
    [(1, 0, 1, 8, 7), (1, 0, 2, 1, 7), (3, 0, 1, 1, (2 << 32) + 9), (1, 1, None, 1, 7)],
)
def test_tokens_that_grow_over_any_move_are_sound(seen, added, server, number, claims):
    found = sound(tokens=Tokens(seen, added, server, number, claims))
    assert "tokens" not in worst(found)


def test_data_that_came_without_their_sequences_are_told_even_if_tokens_grow():
    found = sound(tokens=Tokens(1, 0, 2, 1, 7, behind=True))
    assert worst(found)["tokens"] == "leasework schema lift-tokens"


def test_a_missing_row_of_the_incarnation_is_told():
    assert "lift-tokens" in worst(sound(tokens=None))["tokens"]


def test_autovacuum_that_is_off_or_cannot_keep_up_is_told():
    assert "autovacuum" in worst(sound(settings={**GOOD, "autovacuum": "off"}))
    table = TableView("job", 1000, 900_000, 0, 0, None, 0, 0, 1)
    assert 'vacuum (verbose) "leasework".job' in worst(sound(tables=[table]))["autovacuum"]


def test_a_pooler_and_a_role_whose_commits_are_weak_are_refused():
    told = judge(sound(pooler=TRANSACTION, settings={**GOOD, "synchronous_commit": "off"}))
    words = next(f.sentence for f in told if f.kind == "synchronous_commit")
    assert "refuses to start through a pooler" in words


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_an_isolation_is_told_where_sessions_cannot_set_it(isolation):
    settings = {**GOOD, "default_transaction_isolation": isolation}
    assert worst(sound(settings=settings)) == {}
    told = worst(sound(pooler=TRANSACTION, settings=settings))
    assert "set default_transaction_isolation = 'read committed'" in told["isolation"]


def test_what_broke_off_in_the_middle_is_told_beside_what_was_seen():
    told = judge(sound(error=UnsafeServer("it went away", do="Look")))
    assert (
        told[-1].kind == "database_refuses"
        and told[-1].sentence.endswith("(midway)")
        and len(told) > 5
    )


def test_a_slow_network_and_late_renewals_ask_for_a_longer_recover_within():
    assert recommended(sound(), 15).seconds == 15
    assert recommended(sound(), 15).least == 9
    slow = sound(clocks=Clocks([0.6], watched=5.0))
    advice = recommended(slow, 15)
    assert advice.seconds > 15
    assert Timings.derive(advice.seconds).call_timeout >= 5 * 0.6
    assert "recover_within" in worst(slow)
    late = sound(gaps=[Gaps("w", 10.0, 6.0)])
    assert recommended(late, 15).seconds > 15
    # who is silent for a whole lease is dead and no measure of the living
    assert recommended(sound(gaps=[Gaps("w", 10.0, 60.0)]), 15).seconds == 15


def test_a_node_that_fenced_itself_asks_for_the_next_longer_one():
    assert recommended(sound(trouble={"node_fenced": 2}), 15).seconds == 20


async def test_an_unknown_role_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no such role.*Did you mean 'worker'"):
        await App("postgresql://").diagnose(role="workr")  # type: ignore[arg-type]
