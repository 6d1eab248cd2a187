-- Run a job again: a finished one returns with no attempts made, a waiting one becomes due now.
-- edge: completed -> available
-- edge: cancelled -> available
-- edge: discarded -> available
-- edge: quarantined -> available
-- edge: scheduled -> available
-- edge: retryable -> available
-- locks: job row
-- index: job_pkey, job_done_pkey, deadline_pkey
with sooner as (
    update leasehold.job
    set ready = true, held_because = null, fresh = fresh or not ready,
        seat = case when ready then seat else nextval('leasehold.seat_seq') end,
        run_at = least(run_at, coalesce(%(now)s::timestamptz, now()))
    where id = %(job)s and node is null
    returning queue
), undone as (
    delete from leasehold.job_done d
    where d.id = %(job)s and not exists (select 1 from leasehold.job j where j.id = %(job)s)
    returning d.*
), {{job/_again}}, woken as (
    select leasehold.wake(array_agg(queue)) from (select queue from sooner union all select queue from again) q
)
select case when exists (select 1 from sooner) then 'waiting'
            when exists (select 1 from again) then 'finished'
            when exists (select 1 from leasehold.job where id = %(job)s) then 'running' end,
       (select count(*) from woken)
