-- Jobs that are not finished: those that somebody enqueued, and those of schedules that fire on.
-- locks: none
-- index: a scan of job
select count(*) filter (where schedule is null), count(*) filter (where schedule is not null) from leasehold.job
