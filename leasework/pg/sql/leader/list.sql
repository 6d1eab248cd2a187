-- The leaders.
-- locks: none
-- index: a scan of leader; node_pkey, death_pkey
select name, holder, term, heartbeat, extract(epoch from age)::float8, lease_seconds, acquired_at, node
from leasework.leaders order by name limit %(limit)s
