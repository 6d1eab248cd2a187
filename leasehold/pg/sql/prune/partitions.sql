-- Make the days of job_done ahead and drop those past keeping.
-- locks: job_done, for at most 200 ms
-- index: none
select made, dropped from leasehold.partitions(coalesce(%(now)s::timestamptz, now()), %(ahead_days)s, %(keep_days)s)
