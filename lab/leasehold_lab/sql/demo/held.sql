-- The jobs that a node of the demo, or any of them, holds: running or claimed ahead.
-- locks: none
-- index: a scan of job
select id from leasehold.job
where node is not null and node = coalesce(%(node)s::uuid, node)
