-- The final read: every deadline of a job, its verdict, and the job that was told of a breach.
-- locks: none
-- index: a scan of deadline
select job_id, state, callback_job from leasehold.deadlines where job_id is not null
