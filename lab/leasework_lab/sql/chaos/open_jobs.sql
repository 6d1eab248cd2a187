-- The numbers of unfinished jobs: enqueued ones, and those of schedules, which keep firing.
-- locks: none
-- index: a scan of job
select count(*) filter (where schedule is null), count(*) filter (where schedule is not null) from leasework.job
