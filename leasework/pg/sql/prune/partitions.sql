-- Create the next seven days of job_done, and drop the expired ones.
-- locks: job_done, for at most 200 ms
-- index: none
select dropped from leasework.partitions(coalesce(%(now)s::timestamptz, now()), 7, %(keep_days)s)
