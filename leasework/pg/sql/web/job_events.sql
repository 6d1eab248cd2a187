-- The events of one job, among the newest 20000 events of its time.
-- locks: none
-- index: event_at
select id, at, kind, level, worker_id, fields
from (select * from leasework.events e where e.at >= %(since)s and e.at <= %(until)s order by e.at desc limit 20000) e
where e.fields ->> 'job' = %(job)s::text or e.fields ->> 'on' = 'job ' || %(job)s::text
order by e.at desc, e.id desc limit %(limit)s
