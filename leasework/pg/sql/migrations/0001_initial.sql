-- The whole first schema. "leasework." is replaced by the schema's name if that is not the default. Nothing here
-- depends on search_path.

create table leasework.migration (
    number      integer     primary key,
    name        text        not null,
    -- the oldest schema number that a program must know to work with the current schema
    min_known   integer     not null,
    applied_at  timestamptz not null default now()
);

-- ---- Helpers --------------------------------------------------------------------------------

-- The server's timeline, which grows with each promotion; null if the server does not report it. Managed services
-- refuse these functions in different ways.
create function leasework.server_timeline() returns bigint
language plpgsql volatile parallel restricted security definer set search_path = pg_catalog, pg_temp as $$
begin
    return ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint;
exception when others then
    return null;
end $$;

-- Every dump must include this table, so that tokens never fall, not even after a move to a server on a lower timeline.
create table leasework.incarnation (
    one    boolean primary key default true check (one),
    -- whether the server reports its timeline; if not, it counts as 1
    told   boolean not null,
    -- the server's timeline when a node last read it
    seen   bigint  not null,
    -- the timelines of earlier servers, and one for each time that a person lifted the tokens
    added  bigint  not null default 0,
    -- the timeline that a node saw for as long as any lease lasts: nobody relies on what a promotion to it lost
    settled bigint not null default 0
);
insert into leasework.incarnation (told, seen) select t is not null, coalesce(t, 1) from leasework.server_timeline() t;

-- The upper half of every token, plus one: the server's timeline plus "added". A claim reads it without an exception
-- block, which would be a subtransaction each time. Heartbeats notice when the server refuses.
create function leasework.timeline() returns bigint
language plpgsql volatile parallel restricted security definer set search_path = pg_catalog, pg_temp as $$
declare
    known leasework.incarnation;
    ours  bigint := 1;
begin
    select * into known from leasework.incarnation;
    if not found then
        perform leasework.refuse('the row of leasework.incarnation is missing; the next heartbeat makes it again');
    end if;
    if known.told then
        ours := ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint;
    end if;
    return known.added + ours + case when ours < known.seen then known.seen else 0 end;
end $$;

-- The same, and record the server's timeline. If it is lower, the data came from another server, whose timelines are
-- added. A row that was deleted by hand is created again. settles: record that this timeline is settled.
create function leasework.note_timeline(settles bigint default 0) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    known leasework.incarnation;
    ours  bigint := leasework.server_timeline();
begin
    select * into known from leasework.incarnation;
    if not found then
        return leasework.lift_tokens();
    end if;
    if known.told <> (ours is not null) or known.seen <> coalesce(ours, 1) then
        update leasework.incarnation i
        set told = ours is not null, seen = coalesce(ours, 1),
            added = i.added + case when coalesce(ours, 1) < i.seen then i.seen else 0 end
        where i.told <> (ours is not null) or i.seen <> coalesce(ours, 1);
        return leasework.timeline();
    end if;
    if settles > known.settled and settles = known.added + known.seen then
        update leasework.incarnation set settled = settles;
    end if;
    return known.added + known.seen; -- every heartbeat ends here
end $$;
revoke execute on function leasework.note_timeline(bigint) from public;

-- Raise all future tokens above all earlier ones, even above those that only external systems know: for data from an
-- older backup, and for a failover that lost commits on a server that does not report its timeline. Workers also forget
-- where to begin: the sequence is part of what they know the server by. Sequences that are behind their rows continue
-- after them.
create sequence leasework.lift_seq as bigint;
create function leasework.lift_tokens() returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    ours     bigint := coalesce(leasework.server_timeline(), 1);
    sequence regclass;
    used     bigint;
    highest  bigint := (
        select coalesce(max(t.token), 0) from (
            select max(token) as token from leasework.fence union all select max(token) from leasework.leader
            union all select max(token) from leasework.node union all select max(claim_token) from leasework.job
            union all select max(claim_token) from leasework.job_done
            union all select max(claim_token) from leasework.attempt) t);
begin
    perform nextval('leasework.lift_seq');
    -- Logical replication copies the rows, and not the sequences that gave them their numbers.
    for sequence, used in values
        ('leasework.seat_seq'::regclass, (select max(j.seat) from leasework.job j)),
        ('leasework.event_id_seq', (select max(e.id) from leasework.event e)),
        ('leasework.tally_id_seq', (select max(t.id) from leasework.tally t)),
        ('leasework.bid_ticket_seq', (select max(b.ticket) from leasework.bid b)),
        ('leasework.release_number_seq', (select max(r.number) from leasework.release r))
    loop
        if used > coalesce(pg_sequence_last_value(sequence), 0) then
            perform setval(sequence, used);
        end if;
    end loop;
    insert into leasework.incarnation as i (told, seen, added)
    values (leasework.server_timeline() is not null, ours, (highest >> 32) + (highest > 0)::integer)
    on conflict (one) do update
    set added = greatest(i.added + 1, (highest >> 32) + 2 - ours) + case when ours < i.seen then i.seen else 0 end,
        told = excluded.told, seen = excluded.seen;
    return leasework.timeline();
end $$;
revoke execute on function leasework.lift_tokens() from public;

-- Roll back a statement that found a violation.
create function leasework.refuse(why text) returns bigint
language plpgsql volatile as $$
begin
    raise exception 'leasework: %', why using errcode = 'LH001';
end $$;

-- ---- Nodes and leases -----------------------------------------------------------------------

create sequence leasework.token_seq as bigint;

create table leasework.node (
    id             uuid        primary key,
    token          bigint      not null,
    seq            bigint      not null default 1,
    -- grows when a claim's outcome is unknown: claims of earlier epochs change nothing
    epoch          integer     not null default 1,
    lease_seconds  real        not null,
    app            text        not null,
    release        text        not null,
    host           text        not null,
    pid            integer     not null,
    version        text        not null,
    executes       boolean     not null default true,
    defines        boolean     not null default false, -- its code has schedules
    tasks          text[]      not null default '{}',
    queues         jsonb       not null default '{}',
    -- queues on which this node sleeps and wants to be woken
    sleeping       text[]      not null default '{}',
    started_at     timestamptz not null default now(),
    renewed_at     timestamptz not null default now(),
    -- a person halted its claiming; it continues to run, and obeys with its next renewal
    halted         boolean     not null default false,
    -- what the process reports about itself: leaderships with terms, running jobs, loop lag
    info           jsonb       not null default '{}'
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create function leasework.worker_id(host text, pid integer, node uuid) returns text
language sql immutable
return host || ':' || pid || ':' || right(node::text, 6);

-- Every dead node, however its row was deleted. The rescuer frees its jobs.
create table leasework.death (
    node       uuid        primary key,
    worker_id  text        not null,
    app        text        not null,
    release    text        not null,
    died_at    timestamptz not null default now(),
    -- all its claims were found and freed
    settled    boolean     not null default false,
    -- died: was silent, or certified by its parent; fenced: the process continues under another id; left: stopped;
    -- gone: its row was removed past the trigger, and it still held jobs
    how        text        not null default 'died',
    -- when a person marked it as seen
    seen_at    timestamptz
);
create index death_open on leasework.death (died_at) where not settled;
create index death_unseen on leasework.death (died_at) where how = 'died' and seen_at is null;

create function leasework.bury() returns trigger
language plpgsql as $$
begin
    insert into leasework.death (node, worker_id, app, release, settled, how)
    values (old.id, leasework.worker_id(old.host, old.pid, old.id), old.app, old.release, not old.executes,
            case when old.info ? 'left' then 'left' else 'died' end)
    on conflict (node) do nothing;
    return null;
end $$;

create trigger bury after delete on leasework.node
for each row execute function leasework.bury();

create table leasework.leader (
    name           text        primary key,
    node           uuid,
    token          bigint      not null default 0,
    seq            bigint      not null default 0,
    lease_seconds  real        not null,
    acquired_at    timestamptz,
    renewed_at     timestamptz,
    -- counts since its row was created, for people: the protocol does not use them
    acquired       bigint      not null default 0,
    renewed        bigint      not null default 0,
    resigned       bigint      not null default 0,
    -- terms that ended without a resignation
    expired        bigint      not null default 0,
    -- the time between terms without a valid lease; and since when there has been none
    leaderless_seconds double precision not null default 0,
    vacated_at     timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- What a dead node held, however many names there have ever been. A renewal does not change it, and stays HOT.
create index leader_node on leasework.leader (node) where node is not null;

-- Changes only at an acquisition, so that a long duty under FOR SHARE never blocks a renewal.
create table leasework.fence (
    name   text   primary key,
    token  bigint not null default 0
);

-- Every term, for people, and to create rows again that were deleted by hand.
create table leasework.term (
    name         text        not null,
    token        bigint      not null,
    node         uuid        not null,
    worker_id    text        not null,
    acquired_at  timestamptz not null,
    primary key (name, token)
);

-- The processes that wait for a lock, in the order of tickets: one place each. A node's bids are deleted with it.
create table leasework.bid (
    name    text   not null,
    node    uuid   not null references leasework.node on delete cascade,
    ticket  bigint not null generated always as identity,
    made_at timestamptz not null default clock_timestamp(),
    primary key (name, node)
);
create index bid_order on leasework.bid (name, ticket);
create index bid_node on leasework.bid (node);

-- Names of deployments, numbered in the order in which they were first seen.
create table leasework.release (
    app         text        not null,
    name        text        not null,
    number      bigint      generated always as identity,
    first_seen  timestamptz not null default now(),
    primary key (app, name)
);

-- ---- Jobs -----------------------------------------------------------------------------------

-- A job's place in its queue. Seats grow in the order in which jobs become available. A transaction gets its xid before
-- it takes a seat (trigger job_seat), which tells a claim the seats that can still be filled.
create sequence leasework.seat_seq as bigint;

-- The levels of a queue, in the order in which their jobs run: odd for fresh jobs. PostgreSQL inlines this function, so
-- that it matches the index job_ready. A generated column would make large claims and enqueues slower (ADR 31).
create function leasework.level(priority smallint, fresh boolean) returns integer
language sql immutable return priority * 2 + fresh::integer;

-- Every unfinished job. The columns that a claim changes are last, so that the WAL record of the new row version shares
-- its beginning with the old one. None of them is indexed, so the update is HOT.
create table leasework.job (
    id               uuid        primary key,
    queue            text        not null,
    task_name        text        not null,
    priority         smallint    not null default 0,
    -- false: it was claimed before and came back; it runs before the fresh ones of its priority
    fresh            boolean     not null default true,
    seat             bigint      not null default nextval('leasework.seat_seq'),
    run_at           timestamptz not null default now(),
    created_at       timestamptz not null default now(),
    max_attempts     smallint    not null default 5,
    timeout_seconds  real,
    history          boolean     not null default true,
    unique_key       text,
    schedule         text,
    -- the moment of the schedule's tick, which stays when a retry moves run_at
    tick_at          timestamptz,
    -- whether it has a row in leasework.deadline; if not, none is searched
    deadlines        boolean     not null default false,
    -- take it from its node after this time, even if the node is alive
    requeue_seconds  real,
    -- the span that enqueued it, as W3C's traceparent
    trace            text,
    tags             text[]      not null default '{}',
    -- of its arguments: which version of the task made it
    version          smallint    not null default 1,
    -- what to enqueue when it fails for good: a callback, as in leasework.deadline
    on_failure       jsonb,
    -- the job to enqueue when it completes, as leasework.enqueue takes it
    on_success       jsonb,
    -- it is a member of this batch
    batch            uuid,
    payload          jsonb       not null,
    -- where it waits, if it has limits or is of a fair queue: see leasework.lane_of. Null: it has neither
    lane             text collate "C",
    -- what its start costs each of its keys, in the order of the lane; null: 1
    costs            real[],
    -- true: available (node is null) or running (node is not null); false: waits for run_at, or in its lane
    ready            boolean     not null default true,
    -- why it waits: scheduled, retryable, snoozed, throttled, unknown_task, unknown_version, no_process, unreadable;
    -- sleep, event, gather: its handler has suspended it; limit: it is due and waits in its lane
    held_because     text,
    -- why the last run failed; if a cancel was requested, the reason for it
    last_error       text,
    progress         real,
    progress_note    text,
    started_at       timestamptz,
    crashes          smallint    not null default 0,
    cancel_requested boolean     not null default false,
    attempt          smallint    not null default 0,
    node             uuid,
    claim_token      bigint,
    claimed_at       timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_threshold = 100000);

-- Available and running jobs: a claim changes no column of this index, and is a HOT update. Claims do not read the
-- entries of running jobs, because they know where to begin.
create index job_ready on leasework.job (queue, (priority * 2 + fresh::integer), seat) where ready;
create index job_waiting on leasework.job (run_at, id) where not ready and held_because is distinct from 'limit';
create index job_batch on leasework.job (batch) where batch is not null;

-- How far a node has claimed. None of its jobs at a level has a seat above this one, so the jobs of a dead node are
-- found without reading all waiting jobs. A claim writes it ten thousand seats ahead, so it seldom writes.
create table leasework.claimed_to (
    node  uuid    not null,
    queue text    not null,
    level integer not null,
    seat  bigint  not null,
    primary key (node, queue, level)
) with (fillfactor = 50);

-- Where all workers of a server may begin to claim at a level of fresh jobs: see leasework.claim. The seat is the
-- last value of the sequence begin_<slot>. A sequence leaves no dead versions beside a held snapshot. A slot is free
-- again after a restart: until then, workers remember it, and a claim that has stood still may publish there.
create table leasework.shared_begin (
    slot    smallint    primary key,
    started timestamptz,
    server  bigint,
    queue   text,
    level   integer
);
insert into leasework.shared_begin (slot) select generate_series(1, 16);
do $$ begin
    for slot in 1 .. 16 loop execute format('create sequence leasework.begin_%s as bigint', slot); end loop;
end $$;

-- What a node must know to run a job: a name among leasework.node.tasks.
create function leasework.needs(task text, version smallint) returns text
language sql immutable as $$
    select case when version = 1 then task else task || ' (version ' || version || ')' end
$$;

-- few rows, which every status reads; no claim writes it
create index job_unknown on leasework.job (task_name) where held_because in ('unknown_task', 'unknown_version');

create function leasework.job_seat() returns trigger
language plpgsql as $$
declare
    xid xid8 := pg_current_xact_id(); -- an assignment costs much less than PERFORM, which runs a query
begin
    return null;
end $$;

create trigger job_seat before insert or update of seat on leasework.job
for each statement execute function leasework.job_seat();
alter table leasework.job enable always trigger job_seat;

create table leasework.job_done (
    id            uuid        not null,
    finished_at   timestamptz not null default now(),
    queue         text        not null,
    task_name     text        not null,
    priority      smallint    not null,
    run_at        timestamptz not null,
    created_at    timestamptz not null,
    started_at    timestamptz,
    max_attempts  smallint    not null,
    attempt       smallint    not null,
    crashes       smallint    not null,
    timeout_seconds real,
    state         text        not null,
    schedule      text,
    tick_at       timestamptz,
    node          uuid,
    claim_token   bigint,
    tags          text[]      not null default '{}',
    version       smallint    not null default 1,
    on_failure    jsonb,
    on_success    jsonb,
    batch         uuid,
    payload       jsonb       not null,
    lane          text,
    costs         real[],
    result        jsonb,
    -- of a cancelled job, and of one that completed although a cancel was requested: the reason
    last_error    text,
    progress      real,
    progress_note text,
    primary key (id, finished_at)
) partition by range (finished_at);

-- Days are created ahead. Rows that no day covers are kept here, so none is refused.
create table leasework.job_done_default partition of leasework.job_done default;

create index job_done_bad on leasework.job_done (state, id) where state <> 'completed';
create index job_done_batch on leasework.job_done (batch, id) include (state) where batch is not null;

-- One row per attempt that did not just complete, or whose log is kept.
create table leasework.attempt (
    job_id       uuid        not null,
    claim_token  bigint      not null,
    attempt      smallint    not null,
    node         uuid,
    started_at   timestamptz,
    ended_at     timestamptz not null default now(),
    outcome      text        not null,
    error        text,
    traceback    text,
    -- of one that failed: which errors are the same but for numbers and names, see model/fingerprint.py
    fingerprint  text,
    -- the last lines that it logged, if it failed or its task keeps them
    log          text,
    primary key (job_id, claim_token)
) with (autovacuum_vacuum_insert_scale_factor = 0.02); -- so that counts of failures read their index alone
create index attempt_ended on leasework.attempt (ended_at);
create index attempt_outcome on leasework.attempt (outcome, ended_at);
create index attempt_error on leasework.attempt (fingerprint, ended_at, job_id) where fingerprint is not null;

-- Unique keys have a table of their own, because a job's row moves to job_done.
create table leasework.job_key (
    key         text        primary key,
    job_id      uuid        not null,
    -- null: until the job has finished
    held_until  timestamptz
);
create index job_key_held on leasework.job_key (held_until) where held_until is not null;

-- Jobs whose enqueue was repeated because the first try got no answer. The first try may still arrive late, when the
-- job has run and moved, and looks here. Few rows, kept for two hours after the job was last seen.
create table leasework.repeated (
    job_id  uuid        primary key,
    at      timestamptz not null
);

-- A request to a node, such as a cancel of a running job. The node's next heartbeat reads it.
create table leasework.signal (
    node    uuid not null,
    job_id  uuid not null,
    kind    text not null,
    claim_token bigint not null,
    primary key (node, job_id, kind)
);

-- The stack of a running job's handler: a person asks for it (a signal of the kind "stack", whose job_id is this
-- request), and the job's node writes it. One per job; pruned after an hour.
create table leasework.stack (
    job_id      uuid        primary key,
    request     uuid        not null,
    node        uuid        not null,
    claim_token bigint      not null,
    asked_at    timestamptz not null,
    answered_at timestamptz,
    says        text
);

-- Create the coming days, drop the expired ones. A DROP that waits for readers blocks the inserts behind it, so
-- lock_timeout is short, and the next round tries again.
create function leasework.partitions(clock timestamptz, ahead_days integer, keep_days integer)
returns table (made integer, dropped integer)
language plpgsql volatile set lock_timeout = '200ms' as $$
declare
    today date := (clock at time zone 'UTC')::date;
    d     date;
    part  text;
begin
    made := 0; dropped := 0;
    perform pg_advisory_xact_lock(leasework.lock_class('leasework.days'), 0); -- processes that start at once
    -- first, and a limited number, because the changes below lock the table until the end
    delete from leasework.job_done_default where ctid = any (array(
        select ctid from leasework.job_done_default
        where finished_at < clock - make_interval(days => keep_days + 1) limit 50000));
    for d in select today + n from generate_series(0, ahead_days) n loop
        part := 'job_done_' || to_char(d, 'YYYYMMDD');
        continue when to_regclass(format('leasework.%I', part)) is not null;
        -- a day stays in the default partition if that already has rows of it (nodes create the days when they start)
        continue when exists (select 1 from leasework.job_done_default
                              where finished_at >= d::timestamp at time zone 'UTC'
                                and finished_at < (d + 1)::timestamp at time zone 'UTC');
        execute format('create table leasework.%I partition of leasework.job_done for values from (%L) to (%L)',
                       part, d::timestamp at time zone 'UTC', (d + 1)::timestamp at time zone 'UTC');
        made := made + 1;
    end loop;
    for part in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'leasework.job_done'::regclass and c.relname ~ '^job_done_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') < today - keep_days
    loop
        execute format('drop table leasework.%I', part);
        dropped := dropped + 1;
    end loop;
    return next;
end $$;

-- ---- Schedules ------------------------------------------------------------------------------

create table leasework.schedule (
    app            text        not null,
    name           text        not null,
    spec           jsonb       not null,
    described      text        not null,
    task_name      text        not null,
    job            jsonb       not null,
    missed         text        not null,
    grace_seconds  real        not null,
    -- false: put at run time, and kept until somebody deletes it
    in_code        boolean     not null default true,
    -- of the code; of a schedule that was put, a name that changes with each definition
    release        text        not null,
    paused         boolean     not null default false,
    -- the last pause that ended: the moments in it were missed on purpose
    paused_at      timestamptz,
    resumed_at     timestamptz,
    -- the newest decided instant; nothing at or before it ever fires
    high_water     timestamptz,
    -- the first undecided instant; null: never again
    next_at        timestamptz,
    -- earlier definitions with moments that were due and undecided when the code changed, each until that instant, and
    -- the first moment of the current one: {"stretches": [{spec, first, until}, ...], "first"}
    former         jsonb,
    updated_at     timestamptz not null default now(),
    primary key (app, name)
) with (fillfactor = 70);
create index schedule_next on leasework.schedule (app, next_at) where not paused and next_at is not null;

-- What the definition of a schedule changes in its row. Due and undecided moments stay due, even if the spec changes.
create function leasework.redefined(old leasework.schedule, new leasework.schedule) returns leasework.schedule
language plpgsql immutable as $$
begin
    new.paused := old.paused;
    new.high_water := old.high_water;
    new.former := old.former;
    if old.spec = new.spec then
        new.next_at := case when old.high_water >= new.next_at then old.next_at else least(old.next_at, new.next_at) end;
    elsif old.next_at <= new.updated_at then
        new.former := jsonb_build_object(
            'first', new.next_at,
            'stretches', coalesce(old.former -> 'stretches', '[]') || jsonb_build_object(
                'spec', old.spec, 'first', coalesce(old.former -> 'first', to_jsonb(old.next_at)),
                'until', new.updated_at));
        new.next_at := least(old.next_at, new.next_at);
    else
        new.former := null;
    end if;
    return new;
end $$;

-- The ledger: what happened to each due moment.
create table leasework.tick (
    app         text        not null,
    schedule    text        not null,
    fire_at     timestamptz not null,
    -- the end of one entry for a long stretch of missed moments from fire_at
    until       timestamptz,
    -- fired | missed | manual (a person ran it, in addition to its ticks)
    state       text        not null,
    job_id      uuid,
    term        bigint,
    decided_at  timestamptz not null default now(),
    primary key (app, schedule, fire_at)
);
create index tick_decided on leasework.tick (decided_at);

-- ---- Deadlines ------------------------------------------------------------------------------
-- Deadlines. armed -> met | breached | cancelled, once: the first to lock the row decides, and each
-- write names the state before. "waiting": the start of its interval (the first start of its job) is not known yet.
-- Lock order: jobs, then unique keys, then deadlines.

-- What is wrong with one option of a job, or of a callback's job; null: nothing.
create function leasework.option_wrong(opt text, val jsonb) returns text
language plpgsql stable as $$
declare
    kind  text := coalesce(jsonb_typeof(val), 'null');
    given text := val #>> '{}';
    low   numeric;
    high  numeric;
    whole boolean;
begin
    if opt in ('task', 'queue', 'unique') then
        return case when kind <> 'string' or length(given) not between 1 and 200
                    then 'must be text of 1 to 200 characters' end;
    elsif opt in ('priority', 'max_attempts', 'version', 'payload_limit', 'timeout', 'requeue_after', 'run_in',
                  'unique_for') then
        low := case when opt = 'priority' then -32768 when opt in ('run_in', 'payload_limit') then 0
                    when opt in ('max_attempts', 'requeue_after', 'version') then 1 else 0.001 end;
        high := case when opt in ('priority', 'max_attempts', 'version') then 32767
                     when opt = 'payload_limit' then 1073741823
                     when opt in ('run_in', 'unique_for') then 3162240000 else 604800 end;
        whole := opt in ('priority', 'max_attempts', 'payload_limit', 'version');
        -- a whole number has no fraction: 5.0 could not be read as an integer later
        return case when kind <> 'number' or given::numeric not between low and high or (whole and given !~ '^-?[0-9]+$')
                    then format('must be a %snumber from %s to %s', case when whole then 'whole ' else '' end, low, high) end;
    end if;
    return case
        when opt in ('run_at', 'at') then
            -- refuse 'tomorrow', and times that depend on the session's time zone
            case when kind <> 'string' or length(given) > 50
                      or given !~* '^[0-9]{4}-[0-9]{2}-[0-9]{2}[t ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)? ?(z|[+-][0-9]{2}(:?[0-9]{2}){0,2})$'
                      or given::timestamptz not between '0002-01-01' and '9998-12-31'
                 then 'must be a time with a time zone, like 2030-01-31T12:00:00Z' end
        when opt = 'payload' then case when kind <> 'object' then 'must be an object' end
        when opt = 'trace' then
            case when given !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then 'must be a traceparent' end
        when opt in ('id', 'batch') then
            case when given !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then 'must be a UUID' end
        when opt = 'tenant' then
            case when kind <> 'string' or octet_length(leasework.lane_part(given)) > 400
                 then 'must be text of at most 400 bytes' end
        when opt in ('history', 'retried') then case when kind <> 'boolean' then 'must be true or false' end
        when opt = 'on_conflict' then
            case when given not in ('return', 'raise', 'replace') then 'must be return, raise or replace' end
        when opt = 'tags' then
            case when kind <> 'array' or (
                select count(*) > 10 or count(*) > count(distinct e)
                       or bool_or(jsonb_typeof(e) <> 'string' or length(e #>> '{}') not between 1 and 50)
                from jsonb_array_elements(val) e)
                 then 'must be an array of at most 10 different texts of 1 to 50 characters' end
        when opt = 'deadline' then leasework.deadline_wrong(val)
        when opt = 'on_failure' then leasework.callback_wrong(leasework.callback_of(val), opt)
        when opt = 'limits' then leasework.limits_wrong(val)
        when opt = 'on_success' then case when kind <> 'object' then 'must be an object: a job' end
        else 'is not known' end;
end $$;

-- What is wrong with the job that a breach or a failure would enqueue.
create function leasework.callback_wrong(callback jsonb, label text default 'on_breach') returns text
language plpgsql stable as $$
begin
    if jsonb_typeof(callback -> 'task') is distinct from 'string' then
        return format('needs %s, the name of a task', label);
    end if;
    return (select format('has an %s whose %s %s', label, left(w.opt, 100), w.wrong)
            from (select key as opt, case when key in ('task', 'queue', 'priority', 'max_attempts', 'timeout',
                                                       'requeue_after', 'tags', 'version')
                                          then leasework.option_wrong(key, value) else 'is not known' end as wrong
                  from jsonb_each(callback) where value <> 'null') w
            where w.wrong is not null limit 1);
end $$;

create table leasework.deadline (
    -- the job's id, or its own if it has no job; it connects a breach with its pages
    id            uuid        primary key,
    of_job        boolean     not null,
    name          text        not null,
    schedule      text,
    tick_at       timestamptz,
    state         text        not null check (state in ('waiting', 'armed', 'met', 'breached', 'cancelled')),
    since         text        not null,
    seconds       double precision not null,
    until         text        not null,
    due_at        timestamptz check (due_at is not null or state in ('waiting', 'cancelled'))
                  check (due_at between '0002-01-01 00:00Z' and '9999-12-31 00:00Z'),
    -- task, queue, priority, max_attempts, timeout, requeue_after, tags, version of the callback's job. A sweep that met
    -- one that cannot become a job would fail, with every other deadline in it
    callback      jsonb       not null constraint callback check (leasework.callback_wrong(callback) is null),
    made_at       timestamptz not null,
    closed_at     timestamptz,
    -- the job's state when the deadline was decided
    job_state     text,
    callback_job  uuid
) with (fillfactor = 70);
create index deadline_due on leasework.deadline (due_at) where state = 'armed';
create index deadline_waiting on leasework.deadline (made_at) where state = 'waiting';
create index deadline_closed on leasework.deadline (closed_at) where closed_at is not null;
create index deadline_breached on leasework.deadline (closed_at) where state = 'breached';
-- A deadline without a job is armed once per name, and exists once per name and moment.
create unique index deadline_name on leasework.deadline (name) where not of_job and state = 'armed';
create unique index deadline_moment on leasework.deadline (name, due_at) where not of_job;

-- A callback may be only the name of a task.
create function leasework.callback_of(given jsonb) returns jsonb
language sql immutable
return case when jsonb_typeof(given) = 'object' then given
            when given is not null then jsonb_build_object('task', given) end;

-- What is wrong with the option "deadline":
--   on_breach (required): a task's name, or an object with task, queue, priority, max_attempts,
--   timeout, requeue_after, tags; seconds; since 'scheduled' | 'enqueued' | 'started' | 'tick' | 'fixed'
--   (with at); until 'success' | 'finished'; name
create function leasework.deadline_wrong(item jsonb) returns text
language plpgsql stable as $$
declare
    since text := coalesce(item ->> 'since', 'scheduled');
    secs  numeric := case jsonb_typeof(item -> 'seconds') when 'number' then (item ->> 'seconds')::numeric end;
begin
    return case
        when jsonb_typeof(item) <> 'object' then 'must be an object'
        when item - '{on_breach,seconds,since,at,until,name}'::text[] <> '{}' then 'has options that are not known'
        when since not in ('scheduled', 'enqueued', 'started', 'tick', 'fixed') then
            'must count since scheduled, enqueued, started, tick or fixed'
        when coalesce(item ->> 'until', 'success') not in ('success', 'finished') then
            'must hold until success or finished'
        when item ? 'seconds' and coalesce(secs not between 0 and 3162240000, true) then
            'must have seconds from 0 to 100 years'
        when since <> 'fixed' and coalesce(secs, 0) <= 0 then 'must have seconds above 0'
        when (since = 'fixed' or item ->> 'at' is not null)
             and leasework.option_wrong('at', item -> 'at') is not null then
            'needs at, a time with a time zone, when it is fixed'
        when length(item ->> 'name') not between 1 and 200 then 'must have a name of 1 to 200 characters'
        else leasework.callback_wrong(leasework.callback_of(item -> 'on_breach')) end;
end $$;

-- Insert a job's deadline. If it exists, it stays as it is.
create function leasework.deadline_set(job uuid, task text, schedule text, item jsonb, enqueued timestamptz,
                                       scheduled timestamptz, tick timestamptz) returns boolean
language plpgsql volatile as $$
declare
    ref  text := coalesce(item ->> 'since', 'scheduled');
    secs double precision := coalesce((item ->> 'seconds')::double precision, 0);
    span interval := make_interval(secs => secs);
    due  timestamptz := case ref when 'enqueued' then enqueued + span
                                 when 'scheduled' then coalesce(tick, scheduled) + span
                                 when 'tick' then tick + span
                                 when 'fixed' then (item ->> 'at')::timestamptz end;
begin
    if ref = 'tick' and tick is null then
        raise exception 'leasework.enqueue: a deadline since tick needs the job of a schedule'
            using errcode = 'LH002', hint = 'Count since scheduled.';
    end if;
    if ref = 'fixed' and due <= enqueued and tick is null then
        raise exception 'leasework.enqueue: a deadline lies in the past: %', item ->> 'at'
            using errcode = 'LH002', hint = 'No job of this call was enqueued.';
    end if;
    if due > '9999-12-31 00:00Z' then
        raise exception 'leasework.enqueue: a deadline lies after the year 9999: %', due
            using errcode = 'LH002', hint = 'No job of this call was enqueued.';
    end if;
    insert into leasework.deadline (id, of_job, name, schedule, tick_at, state, since, seconds, until, due_at, callback,
                                    made_at)
    values (job, true, coalesce(item ->> 'name', task), schedule, tick,
            case when due is null then 'waiting' else 'armed' end, ref, secs, coalesce(item ->> 'until', 'success'),
            due, leasework.callback_of(item -> 'on_breach'), enqueued)
    on conflict on constraint deadline_pkey do nothing;
    return found;
end $$;

-- The job got another time by on_conflict 'replace': a deadline that counts from it moves along.
create function leasework.deadline_moved(job uuid, scheduled timestamptz) returns void
language sql volatile
begin atomic
    update leasework.deadline d set due_at = least(scheduled + make_interval(secs => d.seconds), '9999-12-31 00:00Z')
    where d.id = job and d.since = 'scheduled' and d.state = 'armed';
end;

-- A deadline that was met now, late but before a sweep saw it, is not a breach: it becomes an event.
create function leasework.deadline_tell_late(of_id uuid, moment timestamptz) returns void
language plpgsql volatile as $$
begin
    insert into leasework.event (at, kind, level, fields)
    select d.closed_at, 'deadline_late', 'warning', jsonb_build_object(
        'deadline', d.id, 'name', d.name, 'job', case when d.of_job then d.id end,
        'due', to_char(d.due_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'late', round(extract(epoch from d.closed_at - d.due_at), 3)::float8)
    from leasework.deadline d
    where d.id = of_id and d.state = 'met' and d.closed_at = moment and d.due_at < moment;
end $$;

-- A job with a deadline is over: decide it, in the statement that moved it. The row that the same statement wrote to
-- job_done says how it ended. A running job without history leaves none.
create function leasework.deadline_judge() returns trigger
language plpgsql as $$
declare
    ended  text;
    moment timestamptz;
begin
    -- a row of this transaction has its time or the caller's: look there first
    select d.state, d.finished_at into ended, moment
    from leasework.job_done d where d.id = old.id and d.finished_at >= now();
    if ended is null then
        select d.state, d.finished_at into ended, moment
        from leasework.job_done d where d.id = old.id order by d.finished_at desc limit 1;
    end if;
    if ended is null then
        -- deleted by hand: the deadline stays, and its breach will say that the job is gone
        if old.history or old.node is null then
            return null;
        end if;
        ended := 'completed';
        moment := clock_timestamp();
    end if;
    update leasework.deadline d
    set state = case when d.state = 'waiting' or ended = 'cancelled' then 'cancelled' else 'met' end,
        closed_at = moment, job_state = ended
    where d.id = old.id and (d.state = 'waiting' or d.state = 'armed'
        and (ended in ('completed', 'cancelled') or d.until = 'finished'));
    if found then
        perform leasework.deadline_tell_late(old.id, moment);
    end if;
    return null;
end $$;

-- Not called for jobs without a deadline.
create trigger judge after delete on leasework.job
for each row when (old.deadlines) execute function leasework.deadline_judge();

-- Arm a deadline without a job. If one of that name is armed, or has the same name and moment, return that one, with
-- created = false.
create function leasework.deadline_arm(new_id uuid, called text, wanted jsonb, clock timestamptz default null)
returns table (id uuid, created boolean)
language plpgsql volatile as $$
declare
    moment timestamptz := coalesce(clock, clock_timestamp());
    wrong  text := leasework.deadline_wrong(wanted);
    fixed  timestamptz;
    due    timestamptz;
    found_id uuid;
begin
    if wrong is not null then
        raise exception 'leasework.deadline_arm: deadline %, got %', wrong, left(wanted::text, 100)
            using errcode = 'LH002';
    end if;
    if length(called) not between 1 and 200 then
        raise exception 'leasework.deadline_arm: name must be text of 1 to 200 characters' using errcode = 'LH002';
    end if;
    fixed := (wanted ->> 'at')::timestamptz;
    due := coalesce(fixed, moment + make_interval(secs => (wanted ->> 'seconds')::double precision));
    for look in 1..3 loop
        select f.id into found_id from (
            select d.id, d.made_at from leasework.deadline d
            where d.name = called and not d.of_job and d.state = 'armed'
            union all
            select d.id, d.made_at from leasework.deadline d
            where d.name = called and not d.of_job and d.due_at = fixed) f
        order by f.made_at desc limit 1;
        if found_id is not null then
            return query select found_id, false;
            return;
        end if;
        if due <= moment then
            raise exception 'leasework.deadline_arm: the deadline lies in the past: %', due using errcode = 'LH002';
        end if;
        insert into leasework.deadline (id, of_job, name, state, since, seconds, until, due_at, callback, made_at)
        values (new_id, false, called, 'armed', case when fixed is null then 'enqueued' else 'fixed' end,
                coalesce((wanted ->> 'seconds')::double precision, 0), 'success', due,
                leasework.callback_of(wanted -> 'on_breach'), moment)
        on conflict do nothing;
        if found then
            return query select new_id, true;
            return;
        end if;
    end loop;
    raise exception 'leasework.deadline_arm: % is armed and ended again and again', called using errcode = '40001';
end $$;

-- End a deadline without a job as 'met' or 'cancelled'. Return its state; null: not found.
create function leasework.deadline_end(of_id uuid, verdict text, clock timestamptz default null) returns text
language plpgsql volatile as $$
begin
    clock := coalesce(clock, clock_timestamp());
    update leasework.deadline d set state = verdict, closed_at = clock
    where d.id = of_id and case when d.state = 'armed' then not d.of_job end; -- hidden from deadline_due
    if found then
        perform leasework.deadline_tell_late(of_id, clock);
    end if;
    return (select d.state from leasework.deadline d where d.id = of_id and not d.of_job);
end $$;

-- ---- Events ---------------------------------------------------------------------------------

create table leasework.event (
    id         bigint      generated always as identity primary key,
    at         timestamptz not null default clock_timestamp(),
    kind       text        not null,
    level      text        not null,
    node       uuid,
    worker_id  text,
    fields     jsonb       not null default '{}'
);
create index event_at on leasework.event (at);
create index event_kind on leasework.event (kind, at);

-- ---- History --------------------------------------------------------------------------------
-- History: the jobs that finished in each minute, which the leader counts from that minute's rows

-- Rows are only appended, so a summary per range of pages finds one minute among ten million rows.
create index job_done_finished on leasework.job_done using brin (finished_at)
    with (pages_per_range = 16, autosummarize = on);

create table leasework.history (
    at           timestamptz not null,
    queue        text        not null,
    task_name    text        not null,
    completed    bigint      not null default 0,
    cancelled    bigint      not null default 0,
    discarded    bigint      not null default 0,
    quarantined  bigint      not null default 0,
    -- attempts that failed or crashed, whatever happened to the job
    failed       bigint      not null default 0,
    -- class of a duration -> how many: from due to started, and from started to finished. Unlike percentiles, counts
    -- per class can be added over minutes and tasks.
    wait         jsonb       not null default '{}',
    run          jsonb       not null default '{}',
    primary key (at, queue, task_name)
);
create index history_task on leasework.history (task_name, at);

-- ---- Silences -------------------------------------------------------------------------------
-- Problems that a person does not want to see for a while.

create table leasework.silence (
    kind     text        not null,
    -- what the problem is about, as in queue:mail; '' is all of this kind
    subject  text        not null default '',
    until    timestamptz not null,
    who      text        not null,
    reason   text        not null,
    primary key (kind, subject)
);

-- ---- Sessions of the dashboard ---------------------------------------------------------------
-- A session that its person has ended. The row '' says how many times an admin has ended all of them.

create table leasework.ended_session (
    session text        primary key,
    times   bigint      not null default 1,
    at      timestamptz not null
);

-- ---- Counts ---------------------------------------------------------------------------------
-- Counts for metrics, which only grow. Counting inserts a tally, without waiting for others. The leader regularly folds
-- tallies into totals. A count is its total plus its tallies.

create table leasework.tally (
    id      bigint generated always as identity primary key,
    metric  text   not null,
    subject text   not null,
    part    text   not null default '',
    n       bigint not null
);

create table leasework.total (
    metric  text   not null,
    subject text   not null,
    part    text   not null default '',
    n       bigint not null,
    primary key (metric, subject, part)
) with (fillfactor = 50);

create function leasework.tally_events() returns trigger
language plpgsql as $$
begin
    insert into leasework.tally (metric, subject, n) select 'event', f.kind, count(*) from fresh f group by f.kind;
    return null;
end $$;

create trigger tally_events after insert on leasework.event
referencing new table as fresh for each statement execute function leasework.tally_events();

-- Only a login that may execute this function records what people do. A worker's may not.
create function leasework.note_act() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not has_function_privilege('leasework.note_act()', 'execute') then
        raise insufficient_privilege using message = 'permission denied: only the role operator records what people do';
    end if;
    return new;
end $$;

create trigger note_act before insert on leasework.event
for each row when (new.kind = 'person_acted') execute function leasework.note_act();

-- Delete expired records, at most `most` of each kind. Who may not delete them otherwise keeps those of the last day,
-- whatever they ask for.
create function leasework.prune_records(days jsonb, most integer, clock timestamptz) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    newest timestamptz := case when pg_has_role(session_user, current_user, 'usage') then 'infinity'
                               else now() - interval '1 day' end;
    gone   bigint := 0;
    one    bigint;
    kind   record;
begin
    for kind in select * from (values ('events', 'event', 'at'), ('ticks', 'tick', 'decided_at'),
                                      ('attempts', 'attempt', 'ended_at'), ('history', 'history', 'at')) k (kept, name, moment) loop
        execute format('delete from leasework.%1$I where ctid = any (array(
                            select ctid from leasework.%1$I where %2$I < $1 and %2$I < $2 order by %2$I limit $3))', kind.name, kind.moment)
        using newest, clock - make_interval(days => (days ->> kind.kept)::integer), most;
        get diagnostics one = row_count;
        gone := gone + one;
    end loop;
    return gone;
end $$;

-- A minute may be counted again: tally only its growth. The part of a run is its class and its task.
create function leasework.tally_jobs() returns trigger
language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into leasework.tally (metric, subject, part, n)
        select 'job_' || c.name, f.queue, f.task_name, sum(c.n)
        from fresh f cross join lateral (values ('completed', f.completed), ('cancelled', f.cancelled),
            ('discarded', f.discarded), ('quarantined', f.quarantined), ('failed', f.failed)) c (name, n)
        where c.n <> 0 group by 1, 2, 3
        union all
        select t.name, f.queue, c.class || t.task, sum(c.n::bigint)
        from fresh f cross join lateral (values ('wait', f.wait, ''), ('run', f.run, ' ' || task_name)) t (name, counts, task)
        cross join lateral jsonb_each_text(t.counts) c (class, n)
        group by 1, 2, 3;
    else
        insert into leasework.tally (metric, subject, part, n)
        select 'job_' || c.name, f.queue, f.task_name, sum(c.n)
        from fresh f join stale s using (at, queue, task_name)
        cross join lateral (values ('completed', f.completed - s.completed), ('cancelled', f.cancelled - s.cancelled),
            ('discarded', f.discarded - s.discarded), ('quarantined', f.quarantined - s.quarantined),
            ('failed', f.failed - s.failed)) c (name, n)
        where c.n > 0 group by 1, 2, 3
        union all
        select t.name, f.queue, c.class || t.task, sum(c.n::bigint - coalesce((t.before ->> c.class)::bigint, 0))
        from fresh f join stale s using (at, queue, task_name)
        cross join lateral (values ('wait', f.wait, s.wait, ''), ('run', f.run, s.run, ' ' || task_name))
            t (name, counts, before, task)
        cross join lateral jsonb_each_text(t.counts) c (class, n)
        where c.n::bigint > coalesce((t.before ->> c.class)::bigint, 0)
        group by 1, 2, 3;
    end if;
    return null;
end $$;

create trigger tally_new_jobs after insert on leasework.history
referencing new table as fresh for each statement execute function leasework.tally_jobs();
create trigger tally_more_jobs after update on leasework.history
referencing old table as stale new table as fresh for each statement execute function leasework.tally_jobs();

-- How often this node's renewals got no answer. While it lives, its row has the count.
create function leasework.tally_node() returns trigger
language plpgsql as $$
begin
    if jsonb_typeof(old.info -> 'renew_failed') = 'number' and (old.info ->> 'renew_failed')::bigint > 0 then
        insert into leasework.tally (metric, subject, n)
        values ('renew_failed', old.app, (old.info ->> 'renew_failed')::bigint);
    end if;
    return null;
end $$;

create trigger tally_node after delete on leasework.node
for each row execute function leasework.tally_node();

-- How long no lease was valid, for people: the protocol does not read it.
create function leasework.note_vacancy() returns trigger
language plpgsql as $$
declare
    over timestamptz := least(clock_timestamp(), old.renewed_at + make_interval(secs => old.lease_seconds));
begin
    if new.node is null then
        new.vacated_at := case when old.node is null then old.vacated_at else over end;
    else
        new.leaderless_seconds := old.leaderless_seconds + coalesce(greatest(extract(epoch from new.acquired_at
            - case when old.node is null then old.vacated_at else over end), 0), 0);
        new.vacated_at := null;
    end if;
    return new;
end $$;

create trigger note_vacancy before update of node on leasework.leader
for each row when (not starts_with(new.name, 'lock:')) execute function leasework.note_vacancy();

-- ---- Wake-ups -------------------------------------------------------------------------------
-- Wake-ups. NOTIFY takes a lock on the whole cluster at commit, so it is sent only if a node sleeps.

-- Send a wake-up, unless the server's queue of notifications is half full: then some session listens without reading,
-- and once the queue is full, the commit of a NOTIFY fails. The next poll finds what was not notified. False: it was
-- not sent.
create function leasework.notify(message text) returns boolean
language plpgsql volatile as $$
begin
    if pg_notification_queue_usage() >= 0.5 then
        return false;
    end if;
    return pg_notify('leasework', message) is not null;
end $$;

-- Make or replace a schedule of an application, in the transaction of the caller. The definition has name, spec,
-- described, task_name, job, missed, grace_seconds and next_at (the first moment from now on). The leader hears of it
-- at the commit. False: the code defines a schedule of that name, which stays.
create function leasework.schedule_put(of_app text, definition jsonb, clock timestamptz default null)
returns boolean
language plpgsql volatile as $$
declare
    given   leasework.schedule := jsonb_populate_record(null::leasework.schedule, definition);
    old     leasework.schedule;
    is_new  boolean;
begin
    given.app := of_app;
    given.in_code := false;
    given.paused := false;
    given.release := 'put ' || leasework.new_id();
    -- the caller's transaction may have begun long ago
    given.updated_at := coalesce(clock, clock_timestamp());
    loop
        -- without a lock, which would keep the leader from the code's schedule until the caller's transaction ends
        if exists (select 1 from leasework.schedule s where s.app = of_app and s.name = given.name and s.in_code) then
            return false;
        end if;
        insert into leasework.schedule select given.* on conflict (app, name) do nothing;
        is_new := found;
        exit when is_new;
        select s.* into old from leasework.schedule s where s.app = of_app and s.name = given.name for update;
        -- deleted, or taken over by the code, in between: look again
        exit when found and not old.in_code;
    end loop;
    if not is_new then
        given := leasework.redefined(old, given);
        update leasework.schedule s
        set (spec, described, task_name, job, missed, grace_seconds, release, next_at, former, updated_at)
          = (given.spec, given.described, given.task_name, given.job, given.missed, given.grace_seconds,
             given.release, given.next_at, given.former, given.updated_at)
        where s.app = of_app and s.name = given.name;
    end if;
    if current_setting('max_prepared_transactions') = '0' then
        perform leasework.notify('s:' || of_app);
    end if;
    return true;
end $$;

create function leasework.wake(woken text[]) returns void
language plpgsql volatile as $$
declare
    q text;
begin
    for q in
        select distinct w from unnest(woken) w
        where exists (select 1 from leasework.node n where w = any (n.sleeping))
    loop
        perform leasework.notify('q:' || q);
    end loop;
end $$;

-- ---- Limits ---------------------------------------------------------------------------------
-- Limits on how many jobs run at once, and on how often jobs start. A job that has limits, or is of a fair queue, waits
-- in a lane, outside of job_ready: held_because is 'limit'. It is ready only while it runs. An enqueue reads and locks
-- nothing. Nothing is written for a job that is blocked, and there is no counter: what runs of a key is counted from
-- the rows of the jobs, so whatever ends a claim gives its room back (ADR 54).

-- A limit, as the newest code or a person defines it. "set" columns are what a person set until it is reset.
create table leasework.limits (
    name            text collate "C" primary key,
    app             text,
    -- jobs of a key that run at once; null: any number
    concurrency     integer,
    -- what may start of a key in a second, and at once after idleness: jobs, or the sum of their costs
    rate            double precision,
    burst           double precision,
    set_concurrency integer,
    set_rate        double precision,
    set_burst       double precision,
    paused          boolean          not null default false,
    -- when a person last changed it; null: it is as the code says
    set_at          timestamptz,
    updated_at      timestamptz      not null default now()
);

-- One key of a limit: the lock of its claims, its bucket, and what a person set for it. The first claim makes it.
create table leasework.limit_key (
    key             text collate "C" primary key,
    name            text collate "C" not null,
    set_concurrency integer,
    paused          boolean          not null default false,
    set_at          timestamptz,
    -- nothing starts before: a job reported that it is throttled
    closed_until    timestamptz,
    -- what was in the bucket at that time. It is below zero while jobs that were claimed ahead wait for their start.
    tokens          double precision,
    filled_at       timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index limit_key_name on leasework.limit_key (name, key);
create index limit_key_set on leasework.limit_key (name) where set_at is not null;

-- Tenants of a fair queue whose share is not 1. set_weight: by a person, until it is reset.
create table leasework.weight (
    queue      text not null,
    tenant     text not null,
    weight     double precision,
    set_weight double precision,
    primary key (queue, tenant)
);

-- Queues and tasks of which nothing starts. A worker reads it with each renewal; a claim of lanes reads it itself.
create table leasework.pause (
    kind   text        not null check (kind in ('queue', 'task')),
    name   text        not null,
    since  timestamptz not null default now(),
    why    text, -- by whom, and the reason
    primary key (kind, name)
);

-- Jobs that wait, by lane; and the running jobs of a key, which is the first or the second of its lane. CASE hides
-- "ready", so that the planner does not count with job_ready.
create index job_lane on leasework.job (queue, lane, (priority * 2 + fresh::integer), seat) where held_because = 'limit';
create function leasework.holds(lane text, ready boolean, number integer) returns text
language sql immutable
return case when ready then nullif(split_part(lane collate "C", '|', number + 1), '') end;
create index job_holds_1 on leasework.job ((case when ready then nullif(split_part(lane, '|', 1 + 1), '') end))
    where case when ready then nullif(split_part(lane, '|', 1 + 1), '') end is not null;
create index job_holds_2 on leasework.job ((case when ready then nullif(split_part(lane, '|', 2 + 1), '') end))
    where case when ready then nullif(split_part(lane, '|', 2 + 1), '') end is not null;

-- A part of a lane's name. A bar in it is escaped. A job of a fair queue without a tenant has '%'.
create function leasework.lane_part(value text) returns text
language sql immutable
return case when value = '' then '%' else replace(replace(value, '%', '%25'), '|', '%7C') end;

-- A part of a lane's name as it was given.
create function leasework.lane_text(part text) returns text
language sql immutable
return replace(replace(part, '%7C', '|'), '%25', '%');

-- What is wrong with the option "limits" of a job; null: nothing.
create function leasework.limits_wrong(wanted jsonb) returns text
language plpgsql immutable as $$
begin
    if jsonb_typeof(wanted) <> 'array' or jsonb_array_length(wanted) > 2 then
        return 'must be an array of at most two limits';
    end if;
    if exists (
        select 1 from jsonb_array_elements(wanted) e where not coalesce(case jsonb_typeof(e)
            when 'string' then e #>> '{}' ~ '^[A-Za-z0-9_.-]{1,100}$'
            when 'object' then e ->> 'limit' ~ '^[A-Za-z0-9_.-]{1,100}$' and e - '{limit,key,cost}'::text[] = '{}'
                and coalesce(jsonb_typeof(e -> 'key'), 'null') in ('null', 'string', 'number', 'boolean')
                and coalesce(octet_length(leasework.lane_part(e ->> 'key')), 1) between 1 and 400
                and e ->> 'key' is distinct from ''
                and coalesce(jsonb_typeof(e -> 'cost'), 'number') = 'number'
                and coalesce((e ->> 'cost')::numeric, 1) between 0 and 1000000000 end, false)) then
        return 'must have names of limits, or objects with limit, key (1 to 400 bytes) and cost (0 to 10^9)';
    end if;
    if (select count(*) > count(distinct coalesce(e ->> 'limit', e #>> '{}')) from jsonb_array_elements(wanted) e) then
        return 'must not have the same limit twice';
    end if;
    return null;
end $$;

-- Where a job waits: its tenant and the keys of its limits, separated by bars, as in '|vendor|customer:7' and 'acme|'.
-- Null: it has none. A limit whose key is given as null does not apply to the job.
create function leasework.lane_of(job jsonb) returns text
language plpgsql immutable as $$
declare
    keys text;
begin
    if jsonb_typeof(job -> 'limits') = 'array' then
        select string_agg('|' || case when jsonb_typeof(e) = 'string' then e #>> '{}'
                                      else (e ->> 'limit') || coalesce(':' || leasework.lane_part(e ->> 'key'), '') end,
                          '' order by o)
        into keys
        from jsonb_array_elements(job -> 'limits') with ordinality u (e, o)
        where jsonb_typeof(e) = 'string' or jsonb_typeof(e -> 'key') is distinct from 'null';
    end if;
    return case when keys is not null or job ->> 'tenant' is not null
                then coalesce(leasework.lane_part(job ->> 'tenant'), '') || coalesce(keys, '|') end;
end $$;

-- What a start costs each key of the lane; null: 1 each.
create function leasework.costs_of(job jsonb) returns real[]
language sql immutable
return case when job -> 'limits' @? '$[*].cost' then (
    select array_agg(coalesce((e ->> 'cost')::real, 1) order by o)
    from jsonb_array_elements(job -> 'limits') with ordinality u (e, o)
    where jsonb_typeof(e) = 'string' or jsonb_typeof(e -> 'key') is distinct from 'null') end;

create function leasework.lane_keys(lane text) returns text[]
language sql immutable
return coalesce(string_to_array(nullif(substr(lane, strpos(lane, '|') + 1), ''), '|'), '{}');

-- What may start of each key: how many more jobs may run, and what is in the bucket. Exact only for keys that the caller
-- has locked in an earlier statement. A key without a row is not in the answer, unlike one whose limit is not defined.
create function leasework.rooms(keys text[], clock timestamptz)
returns table (key text, slots float8, tokens float8, rate float8, burst float8, opens float8) language sql stable as $$
    select k.key,
           case when d.name is null or k.paused or d.paused then 0
                when coalesce(k.set_concurrency, d.set_concurrency, d.concurrency) is null then 1e6
                else coalesce(k.set_concurrency, d.set_concurrency, d.concurrency)
                     - (select count(*) from leasework.job j where leasework.holds(j.lane, j.ready, 1) = k.key)
                     - (select count(*) from leasework.job j where leasework.holds(j.lane, j.ready, 2) = k.key) end,
           -- time that runs backwards fills nothing
           least(b.burst, coalesce(k.tokens, b.burst) + greatest(0, coalesce(extract(epoch from clock - k.filled_at), 0)) * b.rate),
           b.rate, b.burst, extract(epoch from k.closed_until - clock)
    from unnest(keys) u (key)
    join leasework.limit_key k on k.key = u.key
    left join leasework.limits d on d.name = k.name
    cross join lateral (select coalesce(d.set_rate, d.rate)::float8 as rate, coalesce(d.set_burst, d.burst)::float8 as burst) b $$;

-- The lanes of a queue in which jobs wait, from `first` to before `until`: one descent of the index for each. Or the first
-- lane of each tenant ('}' follows the bar).
create function leasework.lanes_from(of_queue text, first text, until text, most integer, of_tenants boolean default false)
returns table (lane text, place integer) language sql stable as $$
    with recursive walk as (
        select null::text collate "C" as lane, 0 as place
        union all
        select h.lane, w.place + 1 from walk w, lateral (
            select j.lane from leasework.job j
            where j.held_because = 'limit' and j.queue = of_queue and j.lane < until
              and j.lane >= coalesce(case when of_tenants then split_part(w.lane, '|', 1) || '}' else w.lane || E'\x01' end, first)
            order by j.queue, j.lane limit 1) h
        where w.place < most)
    select lane, place from walk where place > 0 $$;

-- Claim jobs that wait in the lanes of a queue, at most `wanted`. It tries at most `visits` lanes from the one after
-- `after`, and then those in `hints`, where a job has just ended: in the other order, a lane behind many full ones would
-- never have its turn. Hints are null while claims find plenty: then nothing is counted before it is locked, and it visits
-- tenants after that of `after` (visits 0: that one), in each the lanes after the one in `cursors`. A claim takes jobs whose
-- tokens arrive within `ahead` seconds, and says in start_in when each may start: or a bucket of one loses time.
--
-- 1. A look without locks finds lanes with room. Each tenant gets its share of `wanted` by its weight, which its lanes
--    share: systematic sampling, for which the worker moves the phase by the golden ratio.
-- 2. It locks the keys of those lanes. It leaves a key that another claim has locked to that claim. If there is no
--    other key, it waits for those of one lane, in order, and holds none meanwhile.
-- 3. It counts again in a later statement, whose snapshot sees every committed claim of these keys. A job fits if its
--    keys are all locked here and have room for it and all jobs before it.
--
-- A row without id says where the walk ended (lane), how many lanes it passed until there (attempt; more than it saw: also
-- those of the hints) of those that it saw (crashes), how much of the share of the last tenant is left (priority), whether
-- it saw the end of the queue (history), the last lane that it chose of each tenant (payload), and in how many seconds the
-- first key opens that lacks only tokens (start_in).
create function leasework.claim_limited(claimant uuid, its_epoch integer, of_queue text, wanted integer,
    not_tasks text[], hints text[], after text, visits integer, phase float8, cursors jsonb, ahead float8)
returns table (id uuid, task_name text, queue text, payload jsonb, priority smallint, attempt smallint,
    max_attempts smallint, crashes smallint, claim_token bigint, timeout_seconds real, requeue_seconds real,
    scheduled_for timestamptz, history boolean, schedule text, deadlines boolean, trace text, version smallint,
    lane text, start_in float8)
language plpgsql volatile as $$
#variable_conflict use_column
declare
    seen     text[];  keys   text[];    locked     text[];
    lanes    text[];  shares integer[]; ends       text; rest integer;
    walked   integer; opens  float8;    clk        timestamptz := clock_timestamp(); wrapped boolean;
    picked   tid[];   starts float8[];  has_rate   boolean; timeline bigint; full_names text[]; full_rooms float8[];
    first    text := case when hints is not null then after || E'\x01' when after > '' then split_part(after, '|', 1) || '}' else '' end;
begin
    if exists (select 1 from leasework.pause p where p.kind = 'queue' and p.name = of_queue) then
        return;
    end if;
    seen := array(select w.lane from leasework.lanes_from(of_queue, first, chr(1114111), visits, hints is null) w order by w.place);
    wrapped := cardinality(seen) < visits;
    seen := seen || array(select w.lane from leasework.lanes_from(of_queue, '', first, visits - cardinality(seen), hints is null) w
                          order by w.place);
    if hints is null then -- the next lanes of each tenant, as many as the jobs that it may get
        seen := array(
            select l.lane
            from (select s.*, least(wanted, ceil(weight * case when wrapped then greatest(1, wanted / nullif(sum(weight) over (), 0)) else 1 end))::integer as most
                  from (select t.place, split_part(t.lane, '|', 1) as tenant, coalesce(w.set_weight, w.weight, 1) as weight,
                               (cursors ->> split_part(t.lane, '|', 1)) || E'\x01' as done
                        from unnest(case visits when 0 then array[after] else seen end) with ordinality t (lane, place)
                        left join leasework.weight w on w.queue = of_queue and w.tenant = split_part(t.lane, '|', 1)) s) s,
                 lateral (select * from leasework.lanes_from(of_queue, coalesce(s.done, s.tenant || '|'), s.tenant || '}', s.most)
                          union all
                          select lane, place + s.most from leasework.lanes_from(of_queue, s.tenant || '|', s.done, s.most)
                          limit s.most) l
            order by s.place, l.place);
    end if;
    walked := cardinality(seen);
    if hints is not null then
        seen := seen || array(select l from unnest(hints) l where l <> all (seen));
        keys := array(select distinct k from unnest(seen) l, unnest(leasework.lane_keys(l)) k);
        with room as materialized ( -- so that each key is counted once
            select r.key, case when r.opens > 0 then 0 else r.slots end as slots, r.tokens + r.rate * ahead as tokens,
                   greatest(r.opens, (1 - r.tokens) / nullif(r.rate, 0) - ahead) as opens, r.slots >= 1 as has_slot
            from leasework.rooms(keys, clk) r
        )
        select array_agg(r.key), array_agg(r.room), min(r.opens) filter (where r.has_slot and r.room < 1)
        into full_names, full_rooms, opens
        from (select *, least(slots, case when tokens > 0 then greatest(1, floor(tokens)) else floor(tokens) end) as room
              from room) r
        where r.room < wanted;
    end if;
    if cardinality(seen) = 0 and hints is not null then return; end if;
    if hints is null and cardinality(seen) = wanted and '|' = all (select left(l, 1) from unnest(seen) l) then
        lanes := seen; -- lanes without tenants have the same weight: one job of each
        shares := array_fill(1, array[wanted]); ends := lanes[wanted];
    else
        with lane as (
            select l.lane, l.place, split_part(l.lane, '|', 1) as tenant, coalesce(min(w.set_weight), min(w.weight), 1) as weight,
                   coalesce(min(r.room), 1e6) as room
            from unnest(seen) with ordinality l (lane, place)
            left join lateral unnest(leasework.lane_keys(l.lane)) k on full_names is not null
            left join unnest(full_names, full_rooms) r (key, room) on r.key = k
            left join leasework.weight w on w.queue = of_queue and w.tenant = split_part(l.lane, '|', 1)
            group by 1, 2
        ), part as (
            select l.*, weight / case tenant when '' then 1 else count(*) over (partition by tenant) end as part from lane l
            where room >= 1 and weight > 0 and (not_tasks = '{}' or (
                select true from leasework.job j where j.held_because = 'limit' and j.queue = of_queue
                and j.lane = l.lane and j.task_name <> all (not_tasks) limit 1))
        ), summed as (
            select p.*, sum(part) over (order by place) as upto, sum(part) over () as whole from part p
        ), shared as (
            select s.lane, s.place, s.tenant, s.upto, least(room, floor(upto * f + phase) - floor((upto - part) * f + phase)) as share
            from summed s, lateral (select case when wrapped or hints is not null then greatest(1, wanted / whole) else 1 end as f) f
        ), chosen as (
            select *, max(before + share) over (partition by tenant) as through
            from (select h.*, sum(share) over (order by place) - share as before from shared h where share > 0) h
        )
        select array_agg(c.lane order by turn), array_agg(least(share, wanted - before)::integer order by turn),
               case when sum(share) >= wanted then (array_agg(c.lane order by place desc))[1] end,
               greatest(max(through) - wanted, 0)
        into lanes, shares, ends, rest -- the first is drawn by weight: a key of theirs may have room for one job only
        from (select *, place + case when upto < phase * max(upto) over () then 1000 else 0 end as turn from chosen
              where before < wanted) c;
    end if;
    ends := coalesce(ends, seen[cardinality(seen)]);
    if lanes is not null then
        perform from leasework.node n where n.id = claimant and n.epoch = its_epoch for key share;
        if not found then return; end if;
        keys := array(select distinct k from unnest(lanes) l, unnest(leasework.lane_keys(l)) k);
        if cardinality(keys) > 0 then
            locked := array(select k.key from leasework.limit_key k where k.key = any (keys) for no key update skip locked);
            if cardinality(locked) < cardinality(keys) then
                insert into leasework.limit_key as n (key, name) select k, split_part(k, ':', 1) from unnest(keys) k
                where not exists (select 1 from leasework.limit_key x where x.key = k) order by 1 on conflict do nothing;
                if found then
                    locked := array(select k.key from leasework.limit_key k where k.key = any (keys)
                                    for no key update skip locked);
                end if;
            end if;
            if cardinality(locked) = 0 then
                lanes := lanes[1:1];
                keys := array(select k from unnest(leasework.lane_keys(lanes[1])) k order by k);
                locked := array(select k.key from leasework.limit_key k where k.key = any (keys)
                                order by k.key for no key update);
            end if;
        end if;
        clk := clock_timestamp();
        with room as materialized (
            select r.key, case when r.opens > 0 then 0 else r.slots end as slots, r.tokens, r.rate, r.burst
            from leasework.rooms(locked, clk) r
        ), best as materialized (
            select b.at_row, b.costs, row_number() over (order by l.place) as place, l.lane
            from unnest(lanes, shares) with ordinality l (lane, share, place), lateral (
                select j.ctid as at_row, j.costs from leasework.job j
                where j.held_because = 'limit' and j.queue = of_queue and j.lane = l.lane
                  and j.task_name <> all (not_tasks)
                  and leasework.lane_keys(l.lane) <@ coalesce(locked, '{}')
                order by leasework.level(j.priority, j.fresh), j.seat limit l.share for update skip locked) b
        ), summed as (
            select b.at_row, b.place, k.key, row_number() over w as rank, coalesce(b.costs[k.o], 1) as own,
                   sum(coalesce(b.costs[k.o], 1)) over w as cost
            from best b, unnest(leasework.lane_keys(b.lane)) with ordinality k (key, o)
            window w as (partition by k.key order by b.place)
        ), judged as (
            -- one that costs more than a full bucket starts at a full bucket, which is below zero then
            select s.at_row, bool_and(s.rank <= r.slots and coalesce(c.cost <= r.tokens + r.rate * ahead, true)) as fits,
                   max((c.cost - r.tokens) / nullif(r.rate, 0)) as start_in,
                   bool_and(s.rank <= r.slots) as has_slot
            from summed s join room r on r.key = s.key
            cross join lateral (select s.cost - greatest(s.own - r.burst, 0) as cost) c group by 1
        )
        select array_agg(b.at_row order by b.place) filter (where coalesce(j.fits, true)),
               array_agg(greatest(j.start_in, 0) order by b.place) filter (where coalesce(j.fits, true)),
               least(opens, min(j.start_in - ahead) filter (where not j.fits and j.has_slot)),
               (select bool_or(r.rate is not null) from room r)
        into picked, starts, opens, has_rate
        from best b left join judged j on j.at_row = b.at_row;
        if picked is not null then
            if has_rate then -- before the rows move
                update leasework.limit_key k
                set filled_at = clk, tokens = r.tokens - u.cost
                from (select key, sum(coalesce(j.costs[o], 1)) as cost
                      from leasework.job j, unnest(leasework.lane_keys(j.lane)) with ordinality p (key, o)
                      where j.ctid = any (picked) group by 1) u
                join leasework.rooms(locked, clk) r on r.key = u.key and r.rate is not null
                where k.key = u.key;
            end if;
            timeline := leasework.timeline();
            insert into leasework.claimed_to as c (node, queue, level, seat)
            select claimant, of_queue, n.level, n.seat + 10000
            from (select leasework.level(j.priority, j.fresh) as level, max(j.seat) as seat
                  from leasework.job j where j.ctid = any (picked) group by 1) n
            where n.seat > coalesce((select c.seat from leasework.claimed_to c
                                     where c.node = claimant and c.queue = of_queue and c.level = n.level), 0)
            on conflict on constraint claimed_to_pkey do update set seat = greatest(c.seat, excluded.seat);
            return query
            update leasework.job j
            set ready = true, held_because = null, node = claimant, attempt = least(j.attempt + 1, 32767),
                claimed_at = clk, claim_token = (timeline - 1 << 32) + nextval('leasework.token_seq')
            from unnest(picked, starts) p (at_row, start_in)
            where j.ctid = p.at_row
            returning j.id, j.task_name, j.queue, j.payload, j.priority, j.attempt, j.max_attempts, j.crashes,
                      j.claim_token, j.timeout_seconds, j.requeue_seconds, coalesce(j.tick_at, j.run_at), j.history,
                      j.schedule, j.deadlines, j.trace, j.version, j.lane, p.start_in;
        end if;
    end if;
    id := null; task_name := null; queue := of_queue;
    payload := (select jsonb_object_agg(split_part(l, '|', 1), l) from unnest(seen) l where hints is null and l = any (lanes));
    attempt := least(array_position(seen, ends), 32767); crashes := walked; lane := coalesce(seen[least(attempt, walked)], after);
    history := wrapped; priority := least(coalesce(rest, 0), 32767); start_in := opens;
    return next;
end $$;

-- ---- Enqueue --------------------------------------------------------------------------------
-- Enqueue: the one entry point for SQL, triggers, other languages and every driver.
-- request: one object, or an array of them, with
--   task (required), payload {}, id, queue 'default', priority 0, run_at | run_in seconds,
--   max_attempts 5, timeout seconds, requeue_after seconds, unique, unique_for seconds,
--   on_conflict 'return' | 'raise' | 'replace', history true, retried false,
--   deadline: an object, see leasework.deadline_wrong; tags: an array of texts,
--   on_failure: a task's name, or an object as on_breach there, version 1 of the arguments
--   on_success: another such object: the job to enqueue when this one completes
--   limits: at most two; the name of a limit, or an object {limit, key, cost 1}; tenant: of a fair queue
-- One row per job: its id, and whether it was created now (false: the key's holder, or a retry).

-- The name of a unique key. A colon in the task's name is escaped, so that two tasks never share a key: "a:b" with "c",
-- and "a" with "b:c".
create function leasework.key_of(task text, label text) returns text
language sql immutable
-- chr(92) is a backslash; a literal one depends on standard_conforming_strings
return replace(replace(task, chr(92), chr(92) || chr(92)), ':', chr(92) || ':') || ':' || label;

-- UUIDv7, as the client makes them: ids grow with time, so that index inserts stay close together.
create function leasework.new_id() returns uuid
language sql volatile
return encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid;

-- Check that each option has its type and is within its limits. An option that is null counts as not given.
create function leasework.enqueue_check(job jsonb) returns void
language plpgsql stable as $$
declare
    opt   text;
    val   jsonb;
    wrong text;
begin
    if jsonb_typeof(job) is distinct from 'object' then
        raise exception 'leasework.enqueue: each job must be an object, got %', coalesce(jsonb_typeof(job), 'null')
            using errcode = '22023';
    end if;
    for opt, val in select * from jsonb_each('{"task": null}' || job) loop
        continue when val = 'null' and opt not in ('task', 'payload');
        wrong := leasework.option_wrong(opt, val);
        if wrong is not null then
            raise exception 'leasework.enqueue: % %, got %', left(opt, 100), wrong,
                case when opt = 'payload' then jsonb_typeof(val) else left(val::text, 100) end
                using errcode = case when opt = 'deadline' then 'LH002' else '22023' end,
                      hint = 'No job of this call was enqueued.';
        end if;
    end loop;
    if job -> 'on_success' <> 'null' then
        if job -> 'history' = 'false' then
            raise exception 'leasework.enqueue: a job with history false cannot have on_success'
                using errcode = '22023', hint = 'Its completion leaves nothing.';
        end if;
        perform leasework.enqueue_check(job -> 'on_success');
    end if;
    if octet_length((job -> 'payload')::text) > coalesce((job ->> 'payload_limit')::integer, 1048576) then
        raise exception 'leasework.enqueue: payload of % bytes is over the limit of %',
            octet_length((job -> 'payload')::text), coalesce(job ->> 'payload_limit', '1048576')
            using errcode = '54000', hint = 'Store what is large elsewhere.';
    end if;
    if (job ->> 'run_at' is not null and job ->> 'run_in' is not null)
       or (job ->> 'unique_for' is not null and job ->> 'unique' is null) then
        raise exception 'leasework.enqueue: give run_at or run_in, not both, and unique_for only with unique'
            using errcode = '22023';
    end if;
end $$;

-- Take the unique key for a new job, or return its holder. Null: taken, so insert the job.
create function leasework.enqueue_key(job jsonb, new_id uuid, due timestamptz, starts boolean, clock timestamptz)
returns uuid
language plpgsql volatile as $$
declare
    full_key text := leasework.key_of(job ->> 'task', job ->> 'unique');
    until    timestamptz := clock + make_interval(secs => (job ->> 'unique_for')::double precision);
    holder   uuid;
    hit      uuid;
begin
    loop
        insert into leasework.job_key (key, job_id, held_until) values (full_key, new_id, until)
        on conflict (key) do nothing returning job_id into hit;
        exit when hit is not null;
        -- an expired key is taken over by compare-and-swap
        update leasework.job_key set job_id = new_id, held_until = until
        where key = full_key and held_until <= clock returning job_id into hit;
        exit when hit is not null;
        select k.job_id into holder from leasework.job_key k where k.key = full_key;
        -- released between the two statements: try again
        continue when holder is null;
        if holder = new_id then
            return new_id;
        end if;
        if job ->> 'on_conflict' = 'raise' then
            raise exception 'leasework.enqueue: another job holds the unique key %', full_key
                using errcode = '23505', constraint = 'job_key_pkey', detail = 'job ' || holder;
        end if;
        if job ->> 'on_conflict' = 'replace' then
            update leasework.job j
            set payload = coalesce(job -> 'payload', '{}'), version = coalesce((job ->> 'version')::smallint, 1),
                run_at = due, lane = leasework.lane_of(job), costs = leasework.costs_of(job),
                ready = starts and leasework.lane_of(job) is null,
                priority = coalesce((job ->> 'priority')::smallint, 0), seat = nextval('leasework.seat_seq'),
                fresh = true, held_because = case when not starts then 'scheduled'
                                                  when leasework.lane_of(job) is not null then 'limit' end
            where j.id = holder and j.node is null;
            if found then
                perform leasework.deadline_moved(holder, due);
            end if;
        end if;
        return holder;
    end loop;
    return null;
end $$;

-- wakes: send wake-ups. A transaction with a NOTIFY cannot be prepared for two-phase commit. If the server allows
-- prepared transactions, the default is to send none, and the next poll finds the job.
create function leasework.enqueue(request jsonb, clock timestamptz default null,
                                  wakes boolean default current_setting('max_prepared_transactions') = '0')
returns table (id uuid, created boolean)
language plpgsql volatile as $$
declare
    moment  timestamptz := coalesce(clock, clock_timestamp());
    item    jsonb;
    place   bigint;
    due     timestamptz;
    starts  boolean;
    since   timestamptz;
    new_id  uuid;
    holder  uuid;
    waits   text;
    woken   text[] := '{}';
    ids     uuid[] := '{}';
    made    boolean[] := '{}';
begin
    if moment not between '0002-01-01 00:00Z' and '9000-01-01 00:00Z' then
        raise exception 'leasework.enqueue: clock must be a time from the year 2 to 9000, got %', moment
            using errcode = '22023', hint = 'Leave it out: it is the moment of the call.';
    end if;
    if jsonb_typeof(request) is distinct from 'array' then
        request := jsonb_build_array(request);
    end if;
    -- sorted by key, so that two requests with the same keys cannot deadlock
    for item, place in
        select e, o from jsonb_array_elements(request) with ordinality as t (e, o)
        order by e ->> 'task', e ->> 'unique', o
    loop
        perform leasework.enqueue_check(item);
        new_id := coalesce((item ->> 'id')::uuid, leasework.new_id());
        due := coalesce((item ->> 'run_at')::timestamptz,
                        moment + make_interval(secs => (item ->> 'run_in')::double precision), moment);
        starts := due <= moment;
        since := case when (item ->> 'retried')::boolean then '-infinity' else moment - interval '2 hours' end;
        if item ->> 'unique' is not null then
            holder := leasework.enqueue_key(item, new_id, due, starts, moment);
            if holder is not null then
                if item ->> 'on_conflict' = 'replace' then
                    woken := woken || array(select j.queue from leasework.job j
                                            where j.id = holder and (j.ready or j.held_because = 'limit')
                                                  and j.node is null);
                end if;
                ids[place] := holder; made[place] := false;
                continue;
            end if;
        end if;
        waits := leasework.lane_of(item);
        insert into leasework.job as j (id, queue, task_name, priority, run_at, created_at, max_attempts,
                timeout_seconds, requeue_seconds, history, unique_key, trace, payload, lane, costs, ready,
                held_because, deadlines, tags, version, on_failure, on_success, batch)
        values (new_id, coalesce(item ->> 'queue', 'default'), item ->> 'task',
                coalesce((item ->> 'priority')::smallint, 0), due, moment,
                coalesce((item ->> 'max_attempts')::smallint, 5), (item ->> 'timeout')::real,
                (item ->> 'requeue_after')::real, coalesce((item ->> 'history')::boolean, true),
                leasework.key_of(item ->> 'task', item ->> 'unique'), item ->> 'trace',
                coalesce(item -> 'payload', '{}'), waits, leasework.costs_of(item), starts and waits is null,
                case when not starts then 'scheduled' when waits is not null then 'limit' end,
                coalesce(jsonb_typeof(item -> 'deadline'), 'null') <> 'null',
                array(select jsonb_array_elements_text(nullif(item -> 'tags', 'null'))),
                coalesce((item ->> 'version')::smallint, 1),
                leasework.callback_of(nullif(item -> 'on_failure', 'null')), nullif(item -> 'on_success', 'null'),
                (item ->> 'batch')::uuid)
        on conflict on constraint job_pkey do nothing;
        created := found;
        -- This try may be late: its repetition may have run and moved the job already. This statement's new snapshot
        -- sees it there if the insert above did not conflict with it. A repetition searches the whole history, a first
        -- try (the usual case) the newest hours.
        if created and item ? 'id' and exists (
                select 1 from leasework.job_done d
                where d.id = new_id and d.finished_at between since and moment + interval '2 hours') then
            delete from leasework.job j where j.id = new_id;
            delete from leasework.job_key k where k.key = leasework.key_of(item ->> 'task', item ->> 'unique')
                and k.job_id = new_id;
            created := false;
        elsif not created and item ->> 'unique' is not null then
            -- a job of this id waits or runs under another key: nobody would ever release this one
            delete from leasework.job_key k
            where k.key = leasework.key_of(item ->> 'task', item ->> 'unique') and k.job_id = new_id
              and not exists (select 1 from leasework.job j where j.id = new_id and j.unique_key = k.key);
        end if;
        -- for leasework.enqueue_plain, the first try of a job without a key
        if created and (item ->> 'retried')::boolean and item ->> 'unique' is null
           and jsonb_array_length(request) = 1 then
            insert into leasework.repeated as r (job_id, at) values (new_id, moment)
            on conflict (job_id) do update set at = excluded.at;
        end if;
        if created and coalesce(jsonb_typeof(item -> 'deadline'), 'null') <> 'null' then
            perform leasework.deadline_set(new_id, item ->> 'task', null, item -> 'deadline', moment, due, null);
        end if;
        if created and starts then
            woken := woken || coalesce(item ->> 'queue', 'default');
        end if;
        ids[place] := new_id; made[place] := created;
    end loop;
    if wakes and cardinality(woken) > 0 then
        perform leasework.wake(woken);
    end if;
    return query select u.i, u.m from unnest(ids, made) as u (i, m);
end $$;

-- Enqueue what follows a job or a batch. One without arguments gets `info` as the argument `called`. A job that cannot be
-- enqueued, because somebody edited it by hand, becomes an event, so that it does not keep the one before from ending.
create function leasework.call_back(callback jsonb, called text, info jsonb, label text, clock timestamptz) returns void
language plpgsql volatile as $$
begin
    if callback is null then
        return;
    end if;
    perform leasework.enqueue(case when callback ? 'payload' or called is null then '{}'
                                   else jsonb_build_object('payload', jsonb_build_object(called, info)) end || callback, clock);
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or sqlstate 'LH002' then
    insert into leasework.event (at, kind, level, fields)
    values (clock, 'callback_failed', 'error', jsonb_build_object('name', label, 'error', sqlerrm));
end $$;

-- Enqueue the on_failure job of a job that failed for good, in the transaction that ends it.
create function leasework.failed() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform leasework.call_back(new.on_failure, 'failure',
        jsonb_build_object('job', new.id, 'task', new.task_name, 'queue', new.queue, 'state', new.state,
            'error', case when new.state <> 'cancelled' then new.last_error end,
            'reason', case when new.state = 'cancelled' then new.last_error end, 'attempt', new.attempt, 'tags', new.tags, 'schedule', new.schedule,
            'tick', to_char(new.tick_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
        'on_failure of ' || new.task_name, new.finished_at);
    return null;
end $$;
create trigger failed after insert on leasework.job_done
for each row when (new.on_failure is not null and new.state <> 'completed') execute function leasework.failed();

-- Enqueue the on_success job of a job that completed, in the transaction that ends it.
create function leasework.succeeded() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform leasework.call_back(new.on_success, null, null, 'on_success of ' || new.task_name, new.finished_at);
    return null;
end $$;
create trigger succeeded after insert on leasework.job_done
for each row when (new.on_success is not null and new.state = 'completed') execute function leasework.succeeded();

-- The usual case: the first try of one job that leasework's client made and checked, due at once, without key and
-- deadline. False: it exists, or this try is late and its repetition made the job. Only the new snapshot of a statement
-- after the insert surely sees that. (Searching the whole history would read ten tables.)
create function leasework.enqueue_plain(new_id uuid, to_queue text, task text, prio smallint, most smallint,
    seconds real, requeue real, keep boolean, arguments jsonb, moment timestamptz)
returns boolean
language plpgsql volatile as $$
declare
    late    boolean;
    asleep  boolean;
begin
    insert into leasework.job (id, queue, task_name, priority, run_at, created_at, max_attempts, timeout_seconds,
                               requeue_seconds, history, payload)
    values (new_id, to_queue, task, prio, moment, moment, most, seconds, requeue, keep, arguments)
    on conflict on constraint job_pkey do nothing;
    if not found then
        return false;
    end if;
    select exists (select 1 from leasework.repeated r where r.job_id = new_id),
           exists (select 1 from leasework.node n where to_queue = any (n.sleeping))
    into late, asleep;
    if late then
        delete from leasework.job j where j.id = new_id;
        return false;
    end if;
    if asleep then
        asleep := leasework.notify('q:' || to_queue);
    end if;
    return true;
end $$;

-- ---- Steps, signals and batches -------------------------------------------------------------
-- What a handler has done, what it waits for, and jobs that end together. A suspended job has no node, and no slot: it
-- waits for run_at, as a snoozed one does. Whoever brings what it waits for makes it available. When it runs again, its
-- handler starts from the top, and finds by their names the steps that are recorded here.

create table leasework.step (
    job     uuid        not null,
    name    text        not null,
    -- step | sleep | event | gather | spawn
    kind    text        not null,
    -- the claim that recorded it, which was live then
    token   bigint      not null,
    -- it waits for its time, its signal or its jobs
    open    boolean     not null default false,
    -- when its wait ends; null: never
    until   timestamptz,
    -- a step: what it returned; an event: {"payload"}, null if the time was over; spawn, and gather while it is open: the
    -- batch; gather: what its jobs returned
    result  jsonb,
    -- how long the step ran
    seconds real,
    at      timestamptz not null,
    primary key (job, name)
);
create index step_at on leasework.step (at);

-- Signals to jobs that have not been taken. A job takes the oldest of a name, once.
create table leasework.inbox (
    id      bigint      generated always as identity,
    job     uuid        not null,
    name    text        not null,
    payload jsonb,
    at      timestamptz not null constraint clock check (at between '0002-01-01 00:00Z' and '9000-01-01 00:00Z'),
    primary key (job, name, id)
);
create unique index inbox_id on leasework.inbox (id);

-- Jobs whose end is one event. There is no counter: a batch has ended when no unfinished job has its id.
create table leasework.batch (
    id         uuid        primary key,
    -- the job that made it with ctx.gather or ctx.spawn
    parent     uuid,
    total      integer     not null,
    -- the jobs to enqueue at its end, as leasework.enqueue takes them; without a payload, they get {"batch"}
    on_done    jsonb,
    on_success jsonb,
    on_failure jsonb,
    made_at    timestamptz not null,
    ended_at   timestamptz,
    -- how many of its jobs had not completed then
    failed     integer
);
create index batch_open on leasework.batch (made_at) where ended_at is null;
create index batch_ended on leasework.batch (ended_at) where ended_at is not null;
create index batch_parent on leasework.batch (parent) where parent is not null;

-- Lock a job's row against the loss of this claim until the transaction ends: whoever takes the claim away locks the
-- row for update, and waits or skips it. False: the claim was lost.
create function leasework.keeps_claim(of_job uuid, of_token bigint, its_node uuid) returns boolean
language plpgsql volatile as $$
begin
    perform from leasework.job j where j.id = of_job and j.claim_token = of_token and j.node = its_node for key share;
    return found;
end $$;

-- Whether what a job waits for has come: 'event:<name>' or 'gather:<batch>'.
create function leasework.has_come(of_job uuid, waits text) returns boolean
language sql stable
return case when waits like 'event:%' then
                exists (select 1 from leasework.inbox i where i.job = of_job and i.name = substr(waits, 7))
            when waits like 'gather:%' then
                (select b.ended_at is not null from leasework.batch b where b.id = substr(waits, 8)::uuid)
            else false end;

-- Begin or continue to wait in a step, for a signal or only for its time (kind 'sleep'). The row says how it stands, and
-- `still` for how many seconds it waits on; null: without an end. No row: the claim was lost.
create function leasework.wait_in_step(of_job uuid, of_token bigint, its_node uuid, of_name text, of_kind text,
    signal text, seconds float8, clock timestamptz default null)
returns table (open boolean, result jsonb, still float8)
language plpgsql volatile as $$
declare
    moment timestamptz := coalesce(clock, clock_timestamp());
    s      leasework.step;
    taken  jsonb;
    came   boolean := false;
begin
    if not leasework.keeps_claim(of_job, of_token, its_node) then
        return;
    end if;
    insert into leasework.step (job, name, kind, token, open, until, at)
    values (of_job, of_name, of_kind, of_token, true, moment + make_interval(secs => seconds), moment)
    on conflict do nothing;
    select * into s from leasework.step x where x.job = of_job and x.name = of_name;
    if s.open and s.kind = of_kind then
        if of_kind = 'event' then
            delete from leasework.inbox i
            where i.job = of_job and i.name = signal
              and i.id = (select min(x.id) from leasework.inbox x where x.job = of_job and x.name = signal)
            returning jsonb_build_object('payload', i.payload) into taken;
            came := found;
        end if;
        if came or s.until <= moment then
            update leasework.step x set open = false, result = taken, token = of_token, seconds = extract(epoch from moment - x.at)
            where x.job = of_job and x.name = of_name returning * into s;
        end if;
    end if;
    return query select s.open, s.result, -- greatest takes no notice of a null
                        case when s.until is not null then greatest(extract(epoch from s.until - moment), 0)::float8 end;
end $$;

-- Send a signal to a job, in the caller's transaction: it is kept until the job takes it. 'woken': the job waited, and
-- is available now; 'kept'; null: no unfinished job has this id. The update of the job's row waits for whoever is
-- suspending it, and makes an outcome that has not seen this signal be written again.
create function leasework.send_signal(to_job uuid, of_name text, payload jsonb default null,
    clock timestamptz default null, wakes boolean default current_setting('max_prepared_transactions') = '0')
returns text
language plpgsql volatile as $$
declare
    moment timestamptz := coalesce(clock, clock_timestamp());
    waits  boolean;
    to_queue text;
begin
    if length(of_name) not between 1 and 200 or of_name is null then
        raise exception 'leasework.send_signal: the name must be text of 1 to 200 characters, got %', left(of_name, 100)
            using errcode = '22023';
    end if;
    if octet_length(payload::text) > 1048576 then
        raise exception 'leasework.send_signal: payload of % bytes is over the limit of 1048576',
            octet_length(payload::text) using errcode = '54000', hint = 'Store what is large elsewhere.';
    end if;
    select j.held_because = 'event' and not j.ready and j.node is null into waits
    from leasework.job j where j.id = to_job for no key update;
    if not found then
        return null;
    end if;
    if (select count(*) from (select 1 from leasework.inbox i where i.job = to_job limit 1000) x) = 1000 then
        raise exception 'leasework.send_signal: 1000 signals wait for the job already'
            using errcode = '54000', hint = 'Let its handler take them, with ctx.event.';
    end if;
    insert into leasework.inbox (job, name, payload, at) values (to_job, of_name, payload, moment);
    if waits then
        to_queue := leasework.resume(to_job, moment);
        if wakes then
            perform leasework.wake(array[to_queue]);
        end if;
        return 'woken';
    end if;
    update leasework.job j set run_at = j.run_at where j.id = to_job;
    return 'kept';
end $$;

-- Make a suspended job available, before the fresh ones. Returns its queue.
create function leasework.resume(of_job uuid, moment timestamptz) returns text
language sql volatile as $$
    update leasework.job j
    set ready = lane is null, held_because = case when lane is not null then 'limit' end, fresh = false,
        seat = nextval('leasework.seat_seq'), run_at = least(run_at, moment)
    where j.id = of_job returning queue
$$;

-- Make a batch and enqueue its jobs, in the caller's transaction. definition: on_done, on_success, on_failure (each a job
-- as leasework.enqueue takes it, or the name of a task), and total if the jobs are enqueued otherwise. The answer
-- is that of leasework.enqueue. A job that is not created, because another holds its unique key, is no member. A
-- batch that exists stays as it is.
create function leasework.make_batch(new_id uuid, definition jsonb, request jsonb, clock timestamptz default null,
    wakes boolean default current_setting('max_prepared_transactions') = '0')
returns table (id uuid, created boolean)
language plpgsql volatile as $$
declare
    ids      uuid[];
    made     boolean[];
    label    text;
    callback jsonb;
begin
    definition := coalesce(definition, '{}');
    for label, callback in select * from jsonb_each(definition - 'total') loop
        if label not in ('on_done', 'on_success', 'on_failure') then
            raise exception 'leasework.make_batch: % is not known', left(label, 100) using errcode = '22023',
                hint = 'A batch has on_done, on_success and on_failure.';
        end if;
        perform leasework.enqueue_check(leasework.callback_of(nullif(callback, 'null')));
    end loop;
    insert into leasework.batch as b (id, total, on_done, on_success, on_failure, made_at)
    values (new_id, coalesce((definition ->> 'total')::integer, 0),
            leasework.callback_of(nullif(definition -> 'on_done', 'null')),
            leasework.callback_of(nullif(definition -> 'on_success', 'null')),
            leasework.callback_of(nullif(definition -> 'on_failure', 'null')), coalesce(clock, clock_timestamp()))
    on conflict on constraint batch_pkey do nothing;
    if not found then
        return query select (e.item ->> 'id')::uuid, false from jsonb_array_elements(request) as e (item);
        return;
    end if;
    select array_agg(e.id), array_agg(e.created) into ids, made from leasework.enqueue(
        (select coalesce(jsonb_agg(item || jsonb_build_object('batch', new_id) order by o), '[]')
         from jsonb_array_elements(request) with ordinality as r (item, o)), clock, wakes) e;
    if definition ->> 'total' is null then
        update leasework.batch b set total = (select count(*) from unnest(made) m where m) where b.id = new_id;
    end if;
    return query select u.i, u.m from unnest(ids, made) as u (i, m);
end $$;

-- Begin or continue the step in which a job makes others and waits for them ('gather'), or does not wait ('spawn').
-- No row: the claim was lost, or the job is being cancelled.
create function leasework.gather(of_job uuid, of_token bigint, its_node uuid, of_name text, of_kind text,
    batch uuid, request jsonb, clock timestamptz default null)
returns table (open boolean, result jsonb, ended boolean)
language plpgsql volatile as $$
begin
    if not leasework.keeps_claim(of_job, of_token, its_node) then
        return;
    end if;
    -- a statement of its own, whose snapshot sees the cancel that the lock has waited for
    if (select j.cancel_requested from leasework.job j where j.id = of_job) then
        return;
    end if;
    insert into leasework.step (job, name, kind, token, open, result, at)
    values (of_job, of_name, of_kind, of_token, of_kind = 'gather', to_jsonb(batch), coalesce(clock, clock_timestamp()))
    on conflict do nothing;
    if found then
        perform leasework.make_batch(batch, '{}', request, clock);
        -- here, because everybody who may enqueue may make batches, and nobody else's job may wait for them
        update leasework.batch b set parent = of_job where b.id = gather.batch;
    end if;
    -- jobs that a person runs again before their results are recorded are waited for, too
    update leasework.batch b set ended_at = null, failed = null from leasework.step s
    where s.job = of_job and s.name = of_name and s.open and s.kind = 'gather' and b.id = (s.result #>> '{}')::uuid
      and b.ended_at is not null and exists (select 1 from leasework.job j where j.batch = b.id);
    return query
        select s.open, s.result,
               s.open and s.kind = 'gather' and (select b.ended_at is not null from leasework.batch b where b.id = (s.result #>> '{}')::uuid)
        from leasework.step s where s.job = of_job and s.name = of_name;
end $$;

-- Copy what the jobs of an ended batch returned to the step that waited for them: [id, state, result, error] of each, in
-- their order. Null: the claim was lost. False: one of them runs again, and has no result.
create function leasework.gathered(of_job uuid, of_token bigint, its_node uuid, of_name text, clock timestamptz default null)
returns jsonb
language plpgsql volatile as $$
declare
    s             leasework.step;
    found_results jsonb;
begin
    if not leasework.keeps_claim(of_job, of_token, its_node) then
        return null;
    end if;
    select * into s from leasework.step x where x.job = of_job and x.name = of_name;
    if not s.open then
        return s.result; -- by a try whose answer was lost
    end if;
    update leasework.step x
    set open = false, token = of_token, seconds = extract(epoch from coalesce(clock, clock_timestamp()) - x.at),
        result = coalesce((select jsonb_agg(jsonb_build_array(d.id, d.state, d.result, d.last_error) order by d.id)
                           from leasework.job_done d where d.batch = (s.result #>> '{}')::uuid), '[]')
    where x.job = of_job and x.name = of_name
      and not exists (select 1 from leasework.job j where j.batch = (s.result #>> '{}')::uuid)
    returning x.result into found_results;
    return coalesce(found_results, 'false');
end $$;

-- End the batches of which no unfinished job is left: enqueue their callbacks, and resume the jobs that wait for them.
-- Any process may do this at any time. Returns how many have ended, and whether any is open.
create function leasework.end_batches(clock timestamptz default null) returns table (ended integer, open boolean)
language plpgsql volatile set lock_timeout = '200ms' as $$
declare
    moment timestamptz := coalesce(clock, clock_timestamp());
    b      leasework.batch;
    bad    integer;
    again  boolean;
    info   jsonb;
    woken  text[] := '{}';
begin
    ended := 0;
    for b in
        select * from leasework.batch x
        where x.ended_at is null and not exists (select 1 from leasework.job j where j.batch = x.id)
        order by x.made_at for update skip locked
    loop exit when ended >= 100 or clock_timestamp() > statement_timestamp() + interval '2 seconds';
        -- a row that somebody's transaction has locked must not hold up the other batches
        perform from leasework.job j where j.id = b.parent for no key update skip locked;
        continue when not found and exists (select 1 from leasework.job j where j.id = b.parent);
        -- a person may have run one again meanwhile
        select count(*), exists (select 1 from leasework.job j where j.batch = b.id) into bad, again
        from leasework.job_done d where d.batch = b.id and d.state <> 'completed';
        continue when again;
        begin
            update leasework.batch x set ended_at = moment, failed = bad where x.id = b.id;
            info := jsonb_build_object('id', b.id, 'total', b.total, 'failed', bad);
            perform leasework.call_back(b.on_done, 'batch', info, 'on_done of batch ' || b.id, moment);
            perform leasework.call_back(case when bad = 0 then b.on_success else b.on_failure end, 'batch', info,
                                        case when bad = 0 then 'on_success' else 'on_failure' end || ' of batch ' || b.id, moment);
        exception when lock_not_available or deadlock_detected then
            perform set_config('lock_timeout', '1ms', true); continue; -- a key of its calls is held: the next round
        end;
        if b.parent is not null then
            -- also if it does not wait yet: as in leasework.send_signal
            if exists (select 1 from leasework.job j where j.id = b.parent and j.held_because = 'gather'
                       and not j.ready and j.node is null) then
                woken := woken || leasework.resume(b.parent, moment);
            else
                update leasework.job j set run_at = j.run_at where j.id = b.parent;
            end if;
        end if;
        ended := ended + 1;
    end loop;
    perform leasework.wake(woken);
    open := exists (select 1 from leasework.batch x where x.ended_at is null);
    return next;
end $$;

-- ---- Claims ---------------------------------------------------------------------------------
-- Claims: jobs of some queues for one node, best first, at most its limit of each queue.
--
-- A level is a priority, and whether its jobs are fresh. For each level that it knows, a worker says where to begin: no
-- available job of the level is before that seat, except jobs of not_tasks, which it never takes. It divides each queue
-- into ranges, in order. The first one has all levels below those that it knows. Each other one begins at a known level,
-- at its seat, and ends before the next known level. A claim looks before it takes: an empty look needs no xid.
--
-- A row without id says in "seen" what the claim found at a level of "queue": the level, the first available seat, the
-- highest seat taken before the claim got its xid, that xid, the oldest xid that still ran when it began, and the
-- server's identity. leasework/model/begins.py says how a worker uses it.
--
-- Any open transaction holds back the oldest xid, even one that never touches a job. If that lasts, a worker names the
-- xid that it waits for (unsettled): then only transactions with a lock on the table count.
--
-- Where workers share a begin, a claim publishes the one that it has established: the first available seat, or the last
-- settled one (settled) if that is smaller, but none beyond a job that it passes over. A worker that asks is told of
-- the shared begins that it does not know, and of nothing else, because a claim would walk over all that is before them.
-- These are rows without id as well: "seen" has the level, the sequence and the server's identity. A worker that does not
-- know this server is told, too. (slot > 0 reads the table by its key: a claim sets enable_seqscan off, which misleads
-- the planner about anything else.)
--
-- A claim in a transaction that has written before neither publishes nor says what it saw: the xid is older than seats
-- that others have taken since, and a rollback would make the jobs available again.
create function leasework.claim(claimant uuid, its_epoch integer, queues text[], limits integer[], not_tasks text[],
    of_server bigint, unsettled bigint, settled bigint, asks boolean, range_queue integer[], range_level integer[],
    range_until integer[], range_begin bigint[], range_shared oid[], clock timestamptz)
returns table (id uuid, task_name text, queue text, payload jsonb, priority smallint, attempt smallint,
    max_attempts smallint, crashes smallint, claim_token bigint, timeout_seconds real, requeue_seconds real,
    scheduled_for timestamptz, history boolean, schedule text, deadlines boolean, trace text, version smallint,
    seen bigint[])
language plpgsql volatile as $$
#variable_conflict use_column
declare
    -- Its seats and xids are known by this number. It changes with a restart, a failover and lifted tokens. A copy of
    -- the database has another one, because its sequences may be ahead.
    this_server   bigint := hashtextextended(concat_ws(' ', extract(epoch from pg_postmaster_start_time()),
        pg_relation_filepath('leasework.seat_seq'), pg_sequence_last_value('leasework.lift_seq')), 0);
    -- Workers take turns at a queue, because they would otherwise all try to lock the same rows.
    turns         integer := leasework.lock_class('leasework.claim');
    alone         boolean := pg_current_xact_id_if_assigned() is null;
    highest       bigint;
    oldest        bigint;
    xid           bigint;
    timeline      bigint;
    at_queue      integer := 0;
    queue_start   integer := 1;
    this_queue    text;
    wanted        integer;
    got           integer;
    has_turn      boolean;
    competes      boolean;
    patient       boolean := true;
    at_level      integer;
    found_level   integer;
    first         bigint;
    picked        tid[];
    last          bigint;
    noted         bigint;
    passed        bigint;
    published     bigint;
    shared        regclass;
begin
    if of_server is distinct from this_server then
        settled := 0; asks := true; range_begin := '{}'; range_shared := '{}';
    elsif not alone then
        settled := 0;
    end if;
    if asks then
        for queue, seen in
            select b.queue, array[b.level, leasework.begin_of(b.slot)::oid::bigint, this_server]
            from leasework.shared_begin b
            where b.slot > 0 and b.server = this_server and b.queue = any (queues)
              and leasework.begin_of(b.slot)::oid <> all (range_shared)
        loop
            return next;
        end loop;
        if found then return; end if;
    end if;
    <<look>>
    loop
        highest := coalesce(pg_sequence_last_value('leasework.seat_seq'), 0);
        oldest := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
        if oldest <= unsettled then
            oldest := greatest(oldest, leasework.oldest_job_writer());
        end if;
        for number in queue_start .. cardinality(range_queue) loop
            if range_queue[number] > at_queue then
                at_queue := range_queue[number]; queue_start := number; this_queue := queues[at_queue];
                wanted := limits[at_queue]; has_turn := false;
            end if;
            at_level := range_level[number];
            shared := nullif(range_shared[number], 0)::regclass;
            first := greatest(range_begin[number], pg_sequence_last_value(shared), 0);
            while wanted > 0 loop
                select leasework.level(j.priority, j.fresh), j.seat into found_level, first from leasework.job j
                where j.ready and j.node is null and j.queue = this_queue
                  and (leasework.level(j.priority, j.fresh), j.seat) >= (at_level, first)
                  and leasework.level(j.priority, j.fresh) < range_until[number]
                  and j.task_name <> all (not_tasks)
                order by leasework.level(j.priority, j.fresh), j.seat limit 1;
                exit when not found;
                if not has_turn then
                    has_turn := true;
                    competes := not pg_try_advisory_xact_lock(turns, hashtext(this_queue));
                    if competes and patient then
                        -- its holder may be suspended, and turns are only for speed
                        perform leasework.advisory_lock(null, turns, hashtext(this_queue), false, false, 500);
                        patient := false;
                        continue look; -- others have claimed meanwhile, and more urgent jobs may have come
                    end if;
                end if;
                patient := false; -- what it claims does not wait for another turn
                if xid is null then
                    perform from leasework.node n where n.id = claimant and n.epoch = its_epoch for key share;
                    if not found then
                        return;
                    end if;
                    xid := pg_current_xact_id()::text::bigint;
                    timeline := leasework.timeline();
                end if;
                if found_level <> range_level[number] then
                    shared := null; -- it is of the first level of the range
                elsif found_level % 2 <> 0 and competes and settled > 0 and shared is null then
                    shared := leasework.share_begin(this_server, this_queue, found_level);
                    if shared is not null then
                        queue := this_queue; seen := array[found_level, shared::oid::bigint, this_server];
                        return next;
                    end if;
                end if;
                passed := least(first, settled);
                published := pg_sequence_last_value(shared);
                if passed > published + 1000 and cardinality(not_tasks) > 0 then
                    -- others may know the tasks of the jobs that it passes over
                    passed := least(passed, (
                        select j.seat from leasework.job j
                        where j.ready and j.node is null and j.queue = this_queue
                          and leasework.level(j.priority, j.fresh) = found_level and j.seat >= published
                        order by j.seat limit 1));
                end if;
                if passed > published + 1000 then
                    perform setval(shared, passed);
                end if;
                select array_agg(p.at_row), max(p.seat), (
                    select c.seat from leasework.claimed_to c
                    where c.node = claimant and c.queue = this_queue and c.level = found_level)
                into picked, last, noted
                from (select j.ctid as at_row, j.seat from leasework.job j
                      where j.ready and j.node is null and j.queue = this_queue
                        and leasework.level(j.priority, j.fresh) = found_level and j.seat >= first
                        and j.task_name <> all (not_tasks)
                      order by j.seat limit wanted for update skip locked) p;
                if last > coalesce(noted, 0) then
                    insert into leasework.claimed_to as c (node, queue, level, seat)
                    values (claimant, this_queue, found_level, last + 10000)
                    on conflict on constraint claimed_to_pkey do update set seat = greatest(c.seat, excluded.seat);
                end if;
                return query
                update leasework.job j
                set node = claimant, attempt = least(j.attempt + 1, 32767), claimed_at = coalesce(clock, now()),
                    claim_token = (timeline - 1 << 32) + nextval('leasework.token_seq')
                from unnest(picked) p (at_row) -- a nested loop, which keeps their order
                where j.ctid = p.at_row
                returning j.id, j.task_name, j.queue, j.payload, j.priority, j.attempt, j.max_attempts, j.crashes,
                          j.claim_token, j.timeout_seconds, j.requeue_seconds, coalesce(j.tick_at, j.run_at), j.history,
                          j.schedule, j.deadlines, j.trace, j.version, null::bigint[];
                get diagnostics got = row_count;
                wanted := wanted - got;
                if got > 0 and alone then
                    queue := this_queue;
                    seen := array[found_level, first, highest, xid, oldest, this_server];
                    return next;
                end if;
                at_level := found_level + 1;
                first := 0;
            end loop;
        end loop;
        exit;
    end loop;
end $$;

-- Let workers share the begin of a level of a queue, if a slot is free. Return its sequence, or null. One worker at a
-- time does this.
create function leasework.share_begin(of_server bigint, of_queue text, of_level integer) returns regclass
language plpgsql volatile as $$
declare
    ignored bigint;
begin
    if pg_try_advisory_xact_lock(leasework.lock_class('leasework.claim'), 0) then
        update leasework.shared_begin b
        set started = pg_postmaster_start_time(), server = of_server, queue = of_queue, level = of_level
        where b.slot = (select f.slot from leasework.shared_begin f
                        where f.started is distinct from pg_postmaster_start_time() order by f.slot limit 1)
          and not exists (select 1 from leasework.shared_begin o
                          where (o.server, o.queue, o.level) = (of_server, of_queue, of_level))
        returning setval(leasework.begin_of(b.slot), 1) into ignored;
    end if;
    return (select leasework.begin_of(b.slot) from leasework.shared_begin b
            where b.slot > 0 and (b.server, b.queue, b.level) = (of_server, of_queue, of_level));
end $$;

-- The sequence of a slot of leasework.shared_begin.
create function leasework.begin_of(slot integer) returns regclass
language sql stable as $$ select ('leasework.begin_' || slot)::regclass $$;

-- The oldest xid of a transaction that may have taken a seat. A transaction that writes a job has an xid and a lock on
-- the table before it has the seat, and keeps both until its end.
create function leasework.oldest_job_writer() returns bigint
language plpgsql volatile as $$
declare
    next_xid bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
    return coalesce((
        -- the difference of two 32-bit xids, with its sign: a newer one may have begun since the snapshot
        select min(next_xid - 2147483648
                   + ((t.transactionid::text::bigint - (next_xid & 4294967295) + 2147483648) & 4294967295))
        from pg_locks t
        where t.locktype = 'transactionid' and t.mode = 'ExclusiveLock' and t.granted
          and exists (select 1 from pg_locks r
                      where r.virtualtransaction = t.virtualtransaction and r.locktype = 'relation'
                        and r.relation = 'leasework.job'::regclass
                        and r.database = (select d.oid from pg_database d where d.datname = current_database())
                        and r.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                                       'AccessExclusiveLock'))
    ), next_xid);
end $$;

-- ---- Views: the contract for people and other tools -----------------------------------------

create view leasework.workers as
    select n.id as node, leasework.worker_id(n.host, n.pid, n.id) as worker_id from leasework.node n
    union all
    select d.node, d.worker_id from leasework.death d
    where not exists (select 1 from leasework.node n where n.id = d.node);

create view leasework.jobs as
    select j.id, j.task_name, j.queue, j.payload,
           case when j.ready and j.node is null or j.held_because = 'limit' then 'available'
                when j.ready then 'running'
                when j.held_because = 'retryable' then 'retryable'
                else 'scheduled' end as state,
           j.priority, j.created_at, coalesce(j.tick_at, j.run_at) as scheduled_for,
           case when j.node is not null then coalesce(j.started_at, j.claimed_at) end as started_at,
           null::timestamptz as completed_at,
           j.attempt, j.max_attempts, j.claim_token,
           (select w.worker_id from leasework.workers w where w.node = j.node) as worker_id,
           case when not j.cancel_requested then j.last_error end as last_error, null::jsonb as result, j.progress,
           j.progress_note, j.cancel_requested, j.crashes, j.held_because, j.schedule, j.node, j.timeout_seconds,
           j.tags, case when j.cancel_requested then j.last_error end as reason,
           case when not j.cancel_requested then
               (select a.traceback from leasework.attempt a
                where a.job_id = j.id and a.error = j.last_error order by a.claim_token desc limit 1) end as traceback, j.batch
    from leasework.job j
    union all
    select d.id, d.task_name, d.queue, d.payload, d.state, d.priority, d.created_at, coalesce(d.tick_at, d.run_at),
           d.started_at, d.finished_at, d.attempt, d.max_attempts, d.claim_token,
           (select w.worker_id from leasework.workers w where w.node = d.node),
           case when d.state not in ('cancelled', 'completed') then d.last_error end, d.result, d.progress,
           d.progress_note, false, d.crashes, null, d.schedule, d.node, d.timeout_seconds, d.tags,
           case when d.state in ('cancelled', 'completed') then d.last_error end,
           case when d.state not in ('cancelled', 'completed') then
               (select a.traceback from leasework.attempt a
                where a.job_id = d.id and a.error = d.last_error order by a.claim_token desc limit 1) end, d.batch
    from leasework.job_done d;

create view leasework.leaders as
    select l.name,
           (select w.worker_id from leasework.workers w where w.node = l.node) as holder,
           l.token as term, l.renewed_at as heartbeat, clock_timestamp() - l.renewed_at as age,
           l.lease_seconds, l.acquired_at, l.node, f.token as fence
    from leasework.leader l left join leasework.fence f using (name)
    where not starts_with(l.name, 'lock:');

create view leasework.nodes as
    select leasework.worker_id(n.host, n.pid, n.id) as worker_id, n.id, n.app, n.release, n.host, n.pid,
           n.version, n.executes, n.queues, n.tasks, n.sleeping, n.started_at, n.renewed_at as heartbeat,
           clock_timestamp() - n.renewed_at as age, n.lease_seconds, n.seq, n.epoch, n.info, n.halted
    from leasework.node n;

-- The outcome of a tick's job: missed | waiting | running | how it ended | unknown (nothing is kept of it), and when it
-- started and ended; for a running one, "at" is the end.
create function leasework.tick_outcome(state text, job uuid, at timestamptz, out outcome text,
                                       out started_at timestamptz, out ended_at timestamptz)
language plpgsql stable as $$
begin
    outcome := state;
    if job is null then
        return;
    end if;
    select case when j.state in ('available', 'scheduled', 'retryable') then 'waiting' else j.state end,
           j.started_at, case when j.state = 'running' then at else j.completed_at end
    into outcome, started_at, ended_at from leasework.jobs j where j.id = job limit 1;
    outcome := coalesce(outcome, 'unknown');
end $$;

create view leasework.schedules as
    select s.app, s.name, s.described, s.task_name, s.missed, s.grace_seconds, s.paused, s.next_at,
           s.high_water, s.release, s.updated_at, s.spec, s.in_code, s.job,
           t.fire_at as last_fire_at, t.state as last_state, t.job_id as last_job_id
    from leasework.schedule s
    left join lateral (select * from leasework.tick t where t.app = s.app and t.schedule = s.name
                       order by t.fire_at desc limit 1) t on true;

create view leasework.ticks as
    select t.app, t.schedule, t.fire_at, t.until, t.state, t.job_id, t.term, t.decided_at,
           t.decided_at - t.fire_at as lateness
    from leasework.tick t;

create view leasework.deadlines as
    select d.id, d.name, d.state, d.due_at, d.closed_at,
           case when d.state = 'breached' or d.state = 'met' then d.closed_at - d.due_at end as late,
           case when d.of_job then d.id end as job_id, d.schedule, d.tick_at, d.since, d.seconds, d.until,
           d.job_state, d.callback ->> 'task' as on_breach, d.callback_job, d.made_at
    from leasework.deadline d;

create view leasework.events as
    select e.id, e.at, e.kind, e.level, e.worker_id, e.fields, e.node from leasework.event e;

-- ---- Advisory locks -------------------------------------------------------------------------

-- The names of keys, because PostgreSQL knows only numbers. Written before a lock is first taken, so that every held
-- lock has its name.
create table leasework.lock_name (
    -- key: of 64 bits; class: the first half of a pair
    kind     text        not null,
    key      bigint      not null,
    name     text        not null,
    used_at  timestamptz not null default now(),
    primary key (kind, key)
);
create index lock_name_used on leasework.lock_name (used_at);

-- The first 8 bytes of a name's SHA-256, little-endian and signed, as app.advisory_lock takes them.
create function leasework.lock_key(name text) returns bigint
language sql immutable strict parallel safe
return (select sum(get_byte(h, n)::bigint << (8 * n))::numeric::bigint
        from sha256(convert_to(name, 'UTF8')) h, generate_series(0, 7) n);

-- The first 4 bytes, for the class of a pair.
create function leasework.lock_class(name text) returns integer
language sql immutable strict parallel safe
return ((leasework.lock_key(name) & 4294967295 # 2147483648) - 2147483648)::integer;

-- The letters of a number that was made of 3 to 8 of them: 0x52494F4C is RIOL.
create function leasework.lock_letters(key bigint) returns text
language sql immutable strict parallel safe
return case when to_hex(key) ~ '^(2[1-9a-f]|[3-6][0-9a-f]|7[0-9a-e]){3,8}$'
            then convert_from(decode(to_hex(key), 'hex'), 'UTF8') end;

-- The classes of our own locks: on tried jobs (claim="advisory"), turns of claims and new days. They are never deleted.
insert into leasework.lock_name (kind, key, name, used_at)
select 'class', leasework.lock_class(n), n, 'infinity' from unnest(array['leasework.job', 'leasework.claim', 'leasework.days']) n;

-- Try (wait_ms null), or wait that long. A wait that ends without the lock returns false and leaves the transaction as
-- it was. lock_timeout is set only for the wait.
create function leasework.advisory_lock(lock_key bigint, class_id integer, object_id integer,
                                        is_shared boolean, in_session boolean, wait_ms integer)
returns boolean
language plpgsql volatile as $$
declare
    before text := current_setting('lock_timeout');
begin
    if wait_ms is null then
        return case
            when lock_key is null and in_session and is_shared then pg_try_advisory_lock_shared(class_id, object_id)
            when lock_key is null and in_session then pg_try_advisory_lock(class_id, object_id)
            when lock_key is null and is_shared then pg_try_advisory_xact_lock_shared(class_id, object_id)
            when lock_key is null then pg_try_advisory_xact_lock(class_id, object_id)
            when in_session and is_shared then pg_try_advisory_lock_shared(lock_key)
            when in_session then pg_try_advisory_lock(lock_key)
            when is_shared then pg_try_advisory_xact_lock_shared(lock_key)
            else pg_try_advisory_xact_lock(lock_key) end;
    end if;
    perform set_config('lock_timeout', greatest(wait_ms, 1)::text, true);
    begin
        perform case
            when lock_key is null and in_session and is_shared then pg_advisory_lock_shared(class_id, object_id)
            when lock_key is null and in_session then pg_advisory_lock(class_id, object_id)
            when lock_key is null and is_shared then pg_advisory_xact_lock_shared(class_id, object_id)
            when lock_key is null then pg_advisory_xact_lock(class_id, object_id)
            when in_session and is_shared then pg_advisory_lock_shared(lock_key)
            when in_session then pg_advisory_lock(lock_key)
            when is_shared then pg_advisory_xact_lock_shared(lock_key)
            else pg_advisory_xact_lock(lock_key) end;
    exception when lock_not_available then
        perform set_config('lock_timeout', before, true);
        return false;
    end;
    perform set_config('lock_timeout', before, true);
    return true;
end $$;

-- Leases (of leaders and of app.lock) and this database's advisory locks, held and waited for. pid is the server's process;
-- a lease is held by a process of the application, which client names.
create view leasework.locks as
    select 'lease'::text as locktype, null::oid as classid, null::oid as objid, null::smallint as objsubid,
           null::bigint as lock_key, regexp_replace(l.name, '^lock:', '') as name, null::integer as pid,
           case when starts_with(l.name, 'lock:') then 'lock' else 'leader' end as mode, true as granted,
           null::timestamptz as waitstart, null::text as state, null::text as query, null::uuid as job_id,
           (select w.worker_id from leasework.workers w where w.node = l.node) as client,
           l.acquired_at as since, null::text as application_name, l.token
    from leasework.leader l
    where l.node is not null
    union all
    select 'lease', null, null, null, null, regexp_replace(b.name, '^lock:', ''), null, 'lock', false, null, null,
           null, null, (select w.worker_id from leasework.workers w where w.node = b.node), null, null, null
    from leasework.bid b
    union all
    select 'advisory', p.classid, p.objid, p.objsubid, k.lock_key,
           case when p.objsubid = 1 then coalesce(n.name, leasework.lock_letters(k.lock_key))
                else coalesce(n.name, k.class_id::text) || ':' || k.object_id end,
           p.pid, p.mode, p.granted, p.waitstart, a.state, a.query,
           substring(a.application_name from '^leasework lock ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$')::uuid,
           coalesce(host(a.client_addr), 'socket'),
           -- PostgreSQL does not keep when it was granted: the start of its session or transaction
           case when a.application_name like 'leasework lock%' then a.backend_start
                else coalesce(a.xact_start, a.backend_start) end,
           a.application_name, null
    from pg_locks p
    cross join lateral (
        select case when p.objsubid = 1 then (p.classid::bigint << 32) | p.objid::bigint end as lock_key,
               (p.classid::bigint # 2147483648) - 2147483648 as class_id,
               (p.objid::bigint # 2147483648) - 2147483648 as object_id) k
    left join leasework.lock_name n
        on n.kind = case when p.objsubid = 1 then 'key' else 'class' end
       and n.key = case when p.objsubid = 1 then k.lock_key else k.class_id end
    left join pg_stat_activity a on a.pid = p.pid
    where p.locktype = 'advisory'
      and p.database = (select d.oid from pg_database d where d.datname = current_database());

-- ---- Rights ---------------------------------------------------------------------------------
-- Rights. Some functions run with their owner's rights, so that a login can get them without the tables: see `leasework
-- schema sql --roles`. Their search_path is fixed, so that they use nobody else's operators. Usage of the schema does
-- not grant execution of those that write.

alter function leasework.enqueue(jsonb, timestamptz, boolean) security definer set search_path = pg_catalog, pg_temp;
alter function leasework.send_signal(uuid, text, jsonb, timestamptz, boolean) security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set jit = off;
alter function leasework.make_batch(uuid, jsonb, jsonb, timestamptz, boolean) security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set jit = off;
alter function leasework.end_batches(timestamptz) set enable_seqscan = off set jit = off;
alter function leasework.partitions(timestamptz, integer, integer) security definer set search_path = pg_catalog, pg_temp
    set datestyle = 'ISO' set timezone = 'UTC'; -- so that it can read the moments that it writes into statements
-- In the user's sessions, as in our own: rows are found by their keys, even if the plan was made when there were none.
-- A small table may still be scanned, which then looks costly: no jit.
alter function leasework.enqueue(jsonb, timestamptz, boolean) set enable_seqscan = off set jit = off;
alter function leasework.deadline_arm(uuid, text, jsonb, timestamptz) set enable_seqscan = off set jit = off;
alter function leasework.deadline_end(uuid, text, timestamptz) set enable_seqscan = off set jit = off;
alter function leasework.deadline_judge() set enable_seqscan = off set jit = off;
alter function leasework.claim(uuid, integer, text[], integer[], text[], bigint, bigint, bigint, boolean, integer[], integer[],
    integer[], bigint[], oid[], timestamptz) set enable_seqscan = off set enable_bitmapscan = off set jit = off
    set plan_cache_mode = force_generic_plan;
alter function leasework.claim_limited(uuid, integer, text, integer, text[], text[], text, integer, float8, jsonb, float8)
    set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan;
revoke execute on function leasework.enqueue(jsonb, timestamptz, boolean), leasework.partitions(timestamptz, integer, integer),
    leasework.prune_records(jsonb, integer, timestamptz) from public;
-- otherwise a trigger on a temporary table could enqueue any job
revoke execute on function leasework.failed(), leasework.succeeded() from public;
revoke execute on function leasework.send_signal(uuid, text, jsonb, timestamptz, boolean),
    leasework.make_batch(uuid, jsonb, jsonb, timestamptz, boolean) from public;

select made from leasework.partitions(now(), 7, 36500);
