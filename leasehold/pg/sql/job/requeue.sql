-- Take a job away from a node that lives: it ran longer than its requeue_after. A row that a
-- transaction of the handler's holds is passed over. The answer: was it taken, and is it still ours?
-- A job whose outcome was written waits under the same token, without a node: there is none to take.
-- edge: running -> available
-- locks: job row FOR UPDATE SKIP LOCKED
-- index: job_pkey
with mine as materialized (
    select id from leasehold.job where id = %(job)s and claim_token = %(token)s and node is not null
    for update skip locked
), back as (
    update leasehold.job j
    set node = null, claim_token = null, started_at = null, progress = null, progress_note = null
    from mine where j.id = mine.id
    returning j.queue
), woken as (
    select leasehold.wake(array_agg(queue), true) from back
)
select exists (select 1 from back),
       exists (select 1 from leasehold.job where id = %(job)s and claim_token = %(token)s and node is not null),
       (select count(*) from woken)
