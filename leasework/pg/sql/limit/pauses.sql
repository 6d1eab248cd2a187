-- The paused queues and tasks.
-- locks: none
-- index: a scan of pause
select p.kind, p.name, p.since, extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - p.since)::float8, p.why
from leasework.pause p order by p.kind, p.name
