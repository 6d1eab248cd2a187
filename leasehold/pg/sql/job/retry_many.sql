-- Run jobs again: finished ones return with no attempts made, waiting ones become due now, running ones are skipped.
-- The answer has those that may run now.
-- edge: completed -> available
-- edge: cancelled -> available
-- edge: discarded -> available
-- edge: quarantined -> available
-- edge: scheduled -> available
-- edge: retryable -> available
-- locks: job rows FOR UPDATE SKIP LOCKED
-- index: job_pkey, job_done_pkey, deadline_pkey
with target as materialized (
    select id from leasehold.job where id = any (%(jobs)s::uuid[]) and node is null order by id for update skip locked
), sooner as (
    update leasehold.job j
    set ready = true, held_because = null, fresh = fresh or not ready,
        seat = case when ready then seat else nextval('leasehold.seat_seq') end,
        run_at = least(run_at, coalesce(%(now)s::timestamptz, now()))
    where j.id = any (array(select id from target)) and j.node is null
    returning j.id, j.queue
), undone as (
    delete from leasehold.job_done d
    where d.id = any (%(jobs)s::uuid[]) and (select true from leasehold.job j where j.id = d.id) is null
    returning d.*
), {{job/_again}}, woken as (
    select leasehold.wake(array_agg(distinct queue))
    from (select queue from sooner union all select queue from again) q
)
select id, (select count(*) from woken) from sooner union all select id, 0 from again
