-- Run a job again: a finished one comes back with no attempts made, a waiting one is due now.
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
), again as (
    insert into leasehold.job (id, queue, task_name, priority, created_at, max_attempts, timeout_seconds, schedule,
                               tick_at, payload, last_error, run_at, deadlines)
    select id, queue, task_name, priority, created_at, max_attempts, timeout_seconds, schedule, tick_at, payload,
           last_error, coalesce(%(now)s::timestamptz, now()),
           (select true from leasehold.deadline x -- as a value, and hidden from deadline_due
            where x.id = undone.id and case x.state when 'armed' then true end limit 1) is not null
    from undone order by finished_at desc limit 1
    on conflict (id) do nothing
    returning queue
), woken as (
    select leasehold.wake(array_agg(queue)) from (select queue from sooner union all select queue from again) q
)
select case when exists (select 1 from sooner) then 'waiting'
            when exists (select 1 from again) then 'finished'
            when exists (select 1 from leasehold.job where id = %(job)s) then 'running' end,
       (select count(*) from woken)
