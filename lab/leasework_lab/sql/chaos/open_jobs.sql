-- The numbers of unfinished jobs: enqueued ones with the batches that have not ended, and those of schedules, which keep
-- firing.
-- locks: none
-- index: a scan of job, batch_open
select count(*) filter (where schedule is null) + (select count(*) from leasework.batch where ended_at is null),
       count(*) filter (where schedule is not null) from leasework.job
