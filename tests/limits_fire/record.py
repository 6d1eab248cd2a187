"""The record: triggers that note each change of a job and of a limit, and when it was committed.

They count nothing, and call no function of limits. What they say is judged afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

SETUP = """
create schema fire;
create table fire.event (
    n bigint generated always as identity primary key, at timestamptz not null default clock_timestamp(),
    kind text not null, job uuid not null, queue text, lane text, costs real[], level integer, seat bigint,
    attempt integer, crashes integer, token bigint, node uuid, claimed_at timestamptz);
create table fire.setting (
    n bigint generated always as identity primary key, at timestamptz not null default clock_timestamp(),
    kind text not null, name text not null, concurrency integer, rate float8, burst float8, paused boolean,
    closed_until timestamptz);

create function fire.add(kind text, j leasework.job, token bigint) returns void language sql as $$
    insert into fire.event (kind, job, queue, lane, costs, level, seat, attempt, crashes, token, node, claimed_at)
    values (kind, j.id, j.queue, j.lane, j.costs, j.priority * 2 + j.fresh::integer, j.seat, j.attempt, j.crashes,
            token, j.node, j.claimed_at) $$;

create function fire.note() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        perform fire.add(case when old.node is null then 'drop' else 'end' end, old, old.claim_token);
        return null;
    elsif tg_op = 'INSERT' then
        perform fire.add('made', new, null);
        if new.held_because = 'limit' then perform fire.add('wait', new, null); end if;
    elsif old.node is null and new.node is not null then
        perform fire.add('claim', new, new.claim_token);
    elsif old.node is not null and new.node is null then
        perform fire.add('end', new, old.claim_token);
        if new.held_because = 'limit' then perform fire.add('wait', new, null); end if;
    elsif old.node is null and new.node is null then
        if new.held_because = 'limit' then perform fire.add('wait', new, null);
        elsif old.held_because = 'limit' then perform fire.add('unwait', new, null); end if;
    elsif old.node <> new.node or old.claim_token <> new.claim_token then
        perform fire.add('stolen', new, old.claim_token);
    end if;
    if new.ready and new.node is null and new.lane is not null then
        perform fire.add('loose', new, null);
    end if;
    return null;
end $$;
create trigger fire after insert or update or delete on leasework.job for each row execute function fire.note();

create function fire.note_limit() returns trigger language plpgsql as $$
begin
    insert into fire.setting (kind, name, concurrency, rate, burst, paused)
    values ('limit', new.name, coalesce(new.set_concurrency, new.concurrency), coalesce(new.set_rate, new.rate),
            coalesce(new.set_burst, new.burst), new.paused);
    return null;
end $$;
create trigger fire after insert or update on leasework.limits for each row execute function fire.note_limit();

create function fire.note_key() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' or (old.set_concurrency, old.paused, old.closed_until)
                           is distinct from (new.set_concurrency, new.paused, new.closed_until) then
        insert into fire.setting (kind, name, concurrency, paused, closed_until)
        values ('key', new.key, new.set_concurrency, new.paused, new.closed_until);
    end if;
    return null;
end $$;
create trigger fire after insert or update on leasework.limit_key for each row execute function fire.note_key();

create function fire.note_pause() returns trigger language plpgsql as $$
begin
    insert into fire.setting (kind, name, paused)
    values ('queue', coalesce(new.name, old.name), tg_op = 'INSERT');
    return null;
end $$;
create trigger fire after insert or delete on leasework.pause for each row execute function fire.note_pause();
"""

_EPOCH = "extract(epoch from {})::float8"
EVENTS = f"""
select n, {_EPOCH.format("at")}, {_EPOCH.format("pg_xact_commit_timestamp(xmin)")}, kind, job::text, queue, lane,
       costs, level, seat, attempt, crashes, token, node::text, {_EPOCH.format("claimed_at")}
from fire.event order by n
"""
SETTINGS = f"""
select {_EPOCH.format("pg_xact_commit_timestamp(xmin)")}, kind, name, concurrency, rate, burst,
       coalesce(paused, false), coalesce({_EPOCH.format("closed_until")}, 0)
from fire.setting order by 1
"""


@dataclass(slots=True)
class Event:
    """One change of a job. ``at``: when it was made; ``done``: when it was committed."""

    n: int
    at: float
    done: float
    kind: str
    job: str
    queue: str
    lane: str | None
    costs: list[float] | None
    level: int
    seat: int
    attempt: int
    crashes: int
    token: int | None
    node: str | None
    claimed_at: float

    @property
    def keys(self) -> list[str]:
        return keys_of(self.lane)

    def cost_of(self, key: str) -> float:
        return cost_of(self.lane, self.costs, key)


@dataclass(slots=True)
class Setting:
    done: float
    kind: str
    name: str
    concurrency: int | None
    rate: float | None
    burst: float | None
    paused: bool
    closed_until: float


def keys_of(lane: str | None) -> list[str]:
    return lane.split("|")[1:] if lane else []


def cost_of(lane: str | None, costs: list[float] | None, key: str) -> float:
    at = keys_of(lane).index(key)
    return 1.0 if not costs or costs[at] is None else costs[at]


def read_events(connection: psycopg.Connection[Any]) -> list[Event]:
    return [Event(*row) for row in connection.execute(EVENTS.encode())]


class Settings:
    """What was in force, and when."""

    def __init__(self, found: list[Setting]) -> None:
        self._by: dict[tuple[str, str], list[Setting]] = {}
        for each in found:
            self._by.setdefault((each.kind, each.name), []).append(each)

    @classmethod
    def read(cls, connection: psycopg.Connection[Any]) -> Settings:
        return cls([Setting(*row) for row in connection.execute(SETTINGS.encode())])

    def during(self, kind: str, name: str, since: float, until: float) -> list[Setting]:
        """All that were in force at some moment of that time."""
        rows = self._by.get((kind, name), [])
        before = [row for row in rows if row.done <= since]
        return before[-1:] + [row for row in rows if since < row.done <= until]

    def most(self, key: str, since: float, until: float) -> float:
        """The most jobs of the key that might run at some moment of that time."""
        limits = self.during("limit", key.partition(":")[0], since, until)
        keys: list[Setting | None] = [*self.during("key", key, since, until)]
        rows = self._by.get(("key", key), [])
        if not rows or rows[0].done > since:
            keys.append(None)
        most = 0.0
        for limit in limits:
            for own in keys:
                if limit.paused or (own and own.paused):
                    continue
                number = own.concurrency if own and own.concurrency else limit.concurrency
                most = max(most, float("inf") if number is None else number)
        return most

    def rates(self, key: str, since: float, until: float) -> tuple[float, float] | None:
        """The highest rate and burst of that time. None: it has no rate."""
        found = self.during("limit", key.partition(":")[0], since, until)
        rates = [(row.rate, row.burst or 0.0) for row in found if row.rate is not None]
        if not rates:
            return None
        return max(rate for rate, _ in rates), max(burst for _, burst in rates)

    def closed(self, key: str, at: float) -> float:
        """Until when it was closed, as of that moment."""
        found = self.during("key", key, at, at)
        return found[-1].closed_until if found else 0.0

    def queue_paused(self, queue: str, since: float, until: float) -> bool:
        """All the time."""
        found = self.during("queue", queue, since, until)
        rows = self._by.get(("queue", queue), [])
        return bool(found) and rows[0].done <= since and all(row.paused for row in found)
