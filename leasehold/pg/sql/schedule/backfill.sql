-- Enqueue jobs for earlier moments of a schedule that did not fire: those without an entry in the ledger, and missed
-- ones. The key of the ledger keeps a moment single, also against the leader and another backfill.
-- edge: new -> available
-- locks: inserts, and ledger rows
-- index: schedule_pkey, tick_pkey, job_pkey
with ledger as (
    insert into leasehold.tick as t (app, schedule, fire_at, state, job_id, decided_at)
    select s.app, s.name, m.at, 'fired', m.job, coalesce(%(now)s::timestamptz, now())
    from leasehold.schedule s, unnest(%(moments)s::timestamptz[], %(jobs)s::uuid[]) as m (at, job)
    where s.app = %(app)s and s.name = %(name)s
    on conflict (app, schedule, fire_at) do update
    set state = 'fired', job_id = excluded.job_id, decided_at = excluded.decided_at
    where t.state = 'missed' and t.until is null
    returning t.fire_at, t.job_id, t.schedule
), wanted as (
    select l.job_id as id, s.task_name as task, s.job as options, l.fire_at as run_at, null as unique_key, l.schedule,
           l.fire_at as tick_at, s.job -> 'payload' as payload
    from ledger l join leasehold.schedule s on s.app = %(app)s and s.name = l.schedule
), made as (
    {{job/_insert}}
    returning queue
), promised as (
    select count(leasehold.deadline_set(w.id, w.task, w.schedule, w.options -> 'deadline',
                                        coalesce(%(now)s::timestamptz, now()), w.run_at, w.tick_at))
    from wanted w where w.options ? 'deadline'
), woken as (
    select leasehold.wake(array_agg(distinct queue)) from made
)
select l.fire_at from ledger l, woken, promised
