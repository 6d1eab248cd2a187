-- Recent events of these kinds, the newest first.
-- locks: none
-- index: event_at
select id, at, kind, level, worker_id, fields from leasehold.events
where at > coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(seconds)s) and kind = any (%(kinds)s)
order by at desc, id desc limit %(limit)s
