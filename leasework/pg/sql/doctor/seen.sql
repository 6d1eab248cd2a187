-- The nodes' latest renewals, with ages by the database's clock.
-- locks: none
-- index: none
select leasework.worker_id(n.host, n.pid, n.id), n.lease_seconds::float8, n.seq,
       extract(epoch from n.renewed_at),
       extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - n.renewed_at)::float8
from leasework.node n order by n.started_at limit 1000
