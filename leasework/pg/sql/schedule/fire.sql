-- Decide ticks: move each schedule's high-water mark and, from the rows that returns, write the ledger and the jobs.
-- Of two leaders, the second one skips the rows that the first one holds, or finds the mark moved. The jobs join the
-- table schedule by its key, not moved: the planner expects one row of moved, and would compare each tick with each
-- schedule.
-- edge: new -> available
-- locks: fence FOR SHARE, schedule rows FOR UPDATE SKIP LOCKED
-- index: schedule_pkey, tick_pkey, job_pkey, fence_pkey
with f as materialized (
    select 1 from leasework.fence where name = %(term_leader)s and token = %(term_token)s for share
), p as materialized (
    select * from jsonb_to_recordset(%(plans)s::jsonb)
        as x (name text, release text, mark bigint, seen timestamptz, high_water timestamptz, next_at timestamptz, ticks jsonb)
), free as materialized (
    -- a user's transaction may hold a row that it puts or deletes; the others fire meanwhile
    select s.name from leasework.schedule s
    where s.app = %(app)s and s.name = any (array(select p.name from p))
    order by s.name for update skip locked
), moved as (
    update leasework.schedule s
    set high_water = greatest(s.high_water, p.high_water), next_at = p.next_at,
        -- earlier definitions are forgotten when all their moments are decided
        former = case when s.former is not null and exists (
            select 1 from jsonb_array_elements(s.former -> 'stretches') f
            where (f ->> 'until')::timestamptz >= p.next_at) then s.former end
    from p
    where s.app = %(app)s and s.name = p.name and s.release = p.release and not s.paused
      and s.name = any (array(select name from free))
      and (p.mark is null or jsonb_hash_extended(s.spec, 0) = p.mark)
      and s.high_water is not distinct from p.seen and exists (select 1 from f)
    returning s.app, s.name, p.ticks
), ledger as (
    insert into leasework.tick (app, schedule, fire_at, until, state, job_id, term, decided_at)
    select m.app, m.name, t.at, t.until, t.state, t.job, %(term_token)s, coalesce(%(now)s::timestamptz, clock_timestamp())
    from moved m cross join lateral jsonb_to_recordset(m.ticks) 
        as t (at timestamptz, until timestamptz, state text, job uuid)
    on conflict do nothing
    returning schedule, fire_at, state, job_id
), wanted as (
    select l.job_id as id, s.task_name as task, s.job as options, l.fire_at as run_at, null as unique_key, l.schedule,
           l.fire_at as tick_at, s.job -> 'payload' as payload
    from ledger l join leasework.schedule s on s.app = %(app)s and s.name = l.schedule
    where l.state = 'fired'
), fired as (
    {{job/_insert}}
    returning queue
), promised as (
    select count(leasework.deadline_set(w.id, w.task, w.schedule, w.options -> 'deadline',
                                        coalesce(%(now)s::timestamptz, now()), w.run_at, w.tick_at))
    from wanted w where w.options ? 'deadline'
), woken as (
    select leasework.wake(array_agg(distinct queue)) from fired
)
select l.schedule, l.fire_at, l.state from ledger l, woken, promised
