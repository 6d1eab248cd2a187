-- The jobs that one node of the demo, or any node, holds: running or claimed ahead.
-- locks: none
-- index: a scan of job
select id from leasework.job
where node is not null and node = coalesce(%(node)s::uuid, node)
