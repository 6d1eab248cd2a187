-- Register a starting process: insert its node row, and its release if that is new.
-- locks: inserts only
-- index: node_pkey, release_pkey
with known as (
    insert into leasehold.release (app, name, first_seen)
    values (%(app)s, %(release)s, coalesce(%(now)s::timestamptz, now()))
    on conflict (app, name) do nothing
)
insert into leasehold.node (id, token, lease_seconds, app, release, host, pid, version, executes,
                            tasks, queues, started_at, renewed_at, halted)
values (%(node)s, (leasehold.note_timeline() - 1 << 32) + nextval('leasehold.token_seq'), %(lease_seconds)s,
        %(app)s, %(release)s, %(host)s, %(pid)s, %(version)s, %(executes)s, %(tasks)s, %(queues)s,
        coalesce(%(now)s::timestamptz, now()), coalesce(%(now)s::timestamptz, now()), %(halted)s)
returning token
