-- The final read: the steps of all jobs.
-- locks: none
-- index: a scan of step
select job, name, kind, open, result, token from leasework.step
