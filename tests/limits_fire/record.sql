-- The record: see record.py.
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
    values (coalesce(new.kind, old.kind), coalesce(new.name, old.name), tg_op = 'INSERT');
    return null;
end $$;
create trigger fire after insert or delete on leasework.pause for each row execute function fire.note_pause();
