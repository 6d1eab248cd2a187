-- Leases and advisory locks, held and waited for.
-- locks: none
-- index: bid_pkey (all of it), node_pkey, death_pkey, lock_name_pkey; a scan of leader
select locktype, classid::bigint, objid::bigint, objsubid, lock_key, name, pid, mode, granted, waitstart,
       state, query, job_id, client, since, application_name, token
from leasework.locks
order by name nulls last, locktype, granted desc, waitstart nulls first, pid
limit %(limit)s
