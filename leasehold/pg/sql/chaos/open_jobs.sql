-- Jobs that are not finished, without those of schedules that fire on.
-- locks: none
-- index: a scan of job
select count(*) from leasehold.job
