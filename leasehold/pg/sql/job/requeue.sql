-- Take a job away from a node that lives: it ran longer than its requeue_after.
-- edge: running -> available
-- locks: job row
-- index: job_pkey
with back as (
    update leasehold.job set node = null, claim_token = null, started_at = null, progress = null, progress_note = null
    where id = %(job)s and claim_token = %(token)s
    returning id, queue
), woken as (
    select leasehold.wake(array_agg(queue)) from back
)
select id from back, woken
