-- Run a schedule's job now, beside its ticks: the high-water mark stays as it is. The ledger gets an entry whose time
-- ends in a microsecond, so that it takes no tick's place. Done again with the same id it changes nothing.
-- edge: new -> available
-- locks: inserts only
-- index: schedule_pkey, job_pkey, tick_pkey
with made as (
    insert into leasehold.job (id, queue, task_name, priority, run_at, created_at, max_attempts, timeout_seconds,
                               requeue_seconds, history, schedule, payload, deadlines)
    select %(job)s, s.job ->> 'queue', s.task_name, (s.job ->> 'priority')::smallint, m.at, m.at,
           (s.job ->> 'max_attempts')::smallint, (s.job ->> 'timeout')::real, (s.job ->> 'requeue_after')::real,
           (s.job ->> 'history')::boolean, s.name, s.job -> 'payload', s.job ? 'deadline'
    from leasehold.schedule s, (select coalesce(%(now)s::timestamptz, now()) as at) m
    where s.app = %(app)s and s.name = %(name)s
    on conflict (id) do nothing
    returning queue, run_at
), ledger as (
    insert into leasehold.tick (app, schedule, fire_at, state, job_id, decided_at)
    select %(app)s, %(name)s, date_trunc('milliseconds', run_at) + interval '1 microsecond', 'manual', %(job)s, run_at
    from made
    on conflict do nothing
), promised as (
    select count(leasehold.deadline_set(%(job)s, s.task_name, s.name, s.job -> 'deadline', m.at, m.at, m.at))
    from leasehold.schedule s, made, (select coalesce(%(now)s::timestamptz, now()) as at) m
    where s.app = %(app)s and s.name = %(name)s and s.job ? 'deadline'
), woken as (
    select leasehold.wake(array_agg(queue)) from made
)
select exists (select 1 from leasehold.schedule where app = %(app)s and name = %(name)s), (select count(*) from woken),
       (select count from promised)
