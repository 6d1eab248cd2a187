-- The final read: every job's deadlines, with their verdicts and the callbacks' jobs.
-- locks: none
-- index: a scan of deadline
select job_id, state, callback_job from leasework.deadlines where job_id is not null
