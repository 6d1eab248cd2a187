-- What failed of the services lately, the newest first.
-- locks: none
-- index: event_at
select id, at, kind, level, worker_id, fields from leasehold.events
where at > coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(seconds)s) and kind = 'service_failed'
order by at desc, id desc limit %(limit)s
