-- The jobs that a node of the demo holds, running or claimed ahead.
-- locks: none
-- index: a scan of job
select id from leasehold.job where node = %(node)s
