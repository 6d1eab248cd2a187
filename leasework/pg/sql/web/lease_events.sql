-- The events of leases, the newest first.
-- locks: none
-- index: event_at
select id, at, kind, level, worker_id, fields
from (select * from leasework.events e where e.at >= %(since)s order by e.at desc limit 20000) e
where kind in ('lease_acquired', 'lease_lost', 'lease_resigned', 'node_fenced', 'node_died', 'node_certified',
               'node_stopped')
order by at desc, id desc limit %(limit)s
