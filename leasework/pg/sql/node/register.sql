-- Register a starting process: insert its node row, and its release if that is new.
-- locks: inserts only
-- index: node_pkey, release_pkey
with known as (
    insert into leasework.release (app, name, first_seen)
    values (%(node_app)s, %(node_release)s, coalesce(%(now)s::timestamptz, now()))
    on conflict (app, name) do nothing
)
insert into leasework.node (id, token, lease_seconds, app, release, host, pid, version, executes,
                            tasks, queues, started_at, renewed_at, halted, defines)
values (%(node_id)s, (leasework.note_timeline() - 1 << 32) + nextval('leasework.token_seq'), %(lease_seconds)s,
        %(node_app)s, %(node_release)s, %(node_host)s, %(node_pid)s, %(node_version)s, %(node_executes)s, %(node_tasks)s, %(node_queues)s,
        coalesce(%(now)s::timestamptz, now()), coalesce(%(now)s::timestamptz, now()), %(node_halted)s, %(node_defines)s)
returning token
