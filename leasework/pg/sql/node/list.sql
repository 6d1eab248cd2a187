-- The nodes that have a row.
-- locks: none
-- index: a scan of node
select worker_id, id, app, release, version, executes and not halted, queues, tasks, started_at, heartbeat,
       extract(epoch from age)::float8, lease_seconds, info, halted
from leasework.nodes order by started_at limit %(limit)s
