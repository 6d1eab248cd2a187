-- Enqueue jobs for earlier moments of a schedule that did not fire: those without an entry in the ledger, and missed
-- ones. The key of the ledger keeps a moment single, also against the leader and another backfill. Moments that the
-- leader has yet to decide are left to it: it would lose a missed stretch that begins with a moment of the ledger. If a
-- missed stretch begins with one of the moments, it is shortened to begin with "after", the schedule's next moment. The
-- jobs are due now, as they have not waited since the moment. Deadlines that count from the moment count from now,
-- because a moment of the past has missed them already.
-- edge: new -> available
-- locks: inserts, and ledger rows
-- index: schedule_pkey, tick_pkey, job_pkey; a scan of ledger_begin
with stretch as materialized (
    select t.fire_at, t.until, t.term, t.decided_at
    from leasework.tick t
    where t.app = %(app)s and t.schedule = %(name)s and t.fire_at = any (%(moments)s::timestamptz[])
      and t.state = 'missed' and t.until is not null
    for update
), ledger as (
    insert into leasework.tick as t (app, schedule, fire_at, state, job_id, decided_at)
    select s.app, s.name, m.at, 'fired', m.job, coalesce(%(now)s::timestamptz, now())
    from leasework.schedule s, unnest(%(moments)s::timestamptz[], %(jobs)s::uuid[]) as m (at, job)
    where s.app = %(app)s and s.name = %(name)s and (s.next_at is null or m.at < s.next_at)
      and not exists (select 1 from leasework.ledger_begin b where m.at <= b.at)
      and (select count(*) from stretch) >= 0  -- read the stretch before its row changes
    on conflict (app, schedule, fire_at) do update
    set state = 'fired', until = null, term = null, job_id = excluded.job_id, decided_at = excluded.decided_at
    where t.state = 'missed'  -- a stretch that the leader has just recorded stays: it was not read
      and (t.until is null or t.fire_at = any (array(select s.fire_at from stretch s)))
    returning t.fire_at, t.job_id, t.schedule
), rest as (
    insert into leasework.tick (app, schedule, fire_at, until, state, term, decided_at)
    select %(app)s, %(name)s, %(after)s, nullif(s.until, %(after)s::timestamptz), 'missed', s.term, s.decided_at
    from stretch s
    where s.until >= %(after)s::timestamptz
    on conflict do nothing
), wanted as (
    select l.job_id as id, s.task_name as task, s.job as options, coalesce(%(now)s::timestamptz, now()) as run_at,
           null as unique_key, l.schedule, l.fire_at as tick_at, s.job -> 'payload' as payload
    from ledger l join leasework.schedule s on s.app = %(app)s and s.name = l.schedule
), made as (
    {{job/_insert}}
    returning queue
), promised as (
    select count(leasework.deadline_set(w.id, w.task, w.schedule,
               w.options -> 'deadline' || case when w.options -> 'deadline' ->> 'since' = 'started' then '{}'
                                               else '{"since": "enqueued"}' end::jsonb,
               coalesce(%(now)s::timestamptz, now()), w.run_at, w.tick_at))
    from wanted w where w.options ? 'deadline'
), woken as (
    select leasework.wake(array_agg(distinct queue)) from made
)
select l.fire_at from ledger l, woken, promised
