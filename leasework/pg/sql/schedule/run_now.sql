-- Run a schedule's job now, in addition to its ticks: the high-water mark stays. The ledger gets an entry whose time
-- ends in a microsecond, so that it is not in the place of a tick. Repeated with the same id, it changes nothing.
-- edge: new -> available
-- locks: inserts only
-- index: schedule_pkey, job_pkey, tick_pkey
with wanted as (
    select %(job)s::uuid as id, s.task_name as task, s.job as options, coalesce(%(now)s::timestamptz, now()) as run_at,
           null as unique_key, s.name as schedule, null::timestamptz as tick_at, s.job -> 'payload' as payload
    from leasework.schedule s where s.app = %(app)s and s.name = %(name)s
), made as (
    {{job/_insert}}
    on conflict (id) do nothing
    returning queue, run_at
), ledger as (
    insert into leasework.tick (app, schedule, fire_at, state, job_id, decided_at)
    select %(app)s, %(name)s, date_trunc('milliseconds', run_at) + interval '1 microsecond', 'manual', %(job)s, run_at
    from made
    on conflict do nothing
), promised as (
    select count(leasework.deadline_set(w.id, w.task, w.schedule, w.options -> 'deadline', w.run_at, w.run_at, w.run_at))
    from wanted w, made where w.options ? 'deadline'
), woken as (
    select leasework.wake(array_agg(queue)) from made
)
select exists (select 1 from wanted), (select count(*) from woken),
       (select count from promised)
