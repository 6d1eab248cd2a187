-- Record events.
-- locks: inserts only
-- index: event_pkey
insert into leasework.event (at, kind, level, node, worker_id, fields)
select coalesce(%(now)s::timestamptz, clock_timestamp()) - make_interval(secs => e.age), e.kind, e.level,
       e.node, e.worker_id, e.fields
from jsonb_to_recordset(%(events)s::jsonb)
    as e (age float8, kind text, level text, node uuid, worker_id text, fields jsonb)
