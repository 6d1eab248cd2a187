-- Delete expired rows, a bounded batch of each kind. An expired key is locked before it is deleted, because a new job
-- may be taking it over; then it stays. A row of repeated is kept for two hours after its job was last seen.
-- locks: the rows; expired keys that are not locked
-- index: job_key_held, job_key_pkey, job_pkey, limits_pkey, job_holds_1, job_holds_2, limit_key_pkey, step_at, job_done_pkey, batch_ended, batch_pkey, inbox_id; a scan of node, death, signal, stack, limit_key, repeated, step and inbox
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as at
), kept as (
    select * from jsonb_to_record(%(days)s::jsonb) as d (events integer, finished integer)
), e as (
    select leasework.prune_records(%(days)s::jsonb, %(limit)s, (select at from clock)) as gone
), d as (
    delete from leasework.death where node in (
        select node from leasework.death, clock
        where settled and died_at < clock.at - make_interval(days => (select events from kept)) limit %(limit)s)
    returning 1
), k as (
    delete from leasework.job_key where key in (
        select key from leasework.job_key where held_until < (select at from clock)
        limit %(limit)s for update of job_key skip locked)
    returning 1
), s as (
    delete from leasework.signal where not exists (select 1 from leasework.node n where n.id = signal.node)
    returning 1
), l as (
    delete from leasework.stack where job_id in (
        select job_id from leasework.stack, clock
        where asked_at < clock.at - interval '1 hour' limit %(limit)s)
    returning 1
), m as (
    -- keys of limits that nobody uses; a claim makes them again, and a full bucket is forgotten
    delete from leasework.limit_key where key in (
        select k.key from leasework.limit_key k left join leasework.limits d on d.name = k.name, clock
        where k.set_at is null and (k.closed_until <= clock.at) is not false
          and coalesce(k.tokens + extract(epoch from clock.at - k.filled_at) * coalesce(d.set_rate, d.rate)
                       >= coalesce(d.set_burst, d.burst), true)
          and not exists (select 1 from leasework.job j where leasework.holds(j.lane, j.ready, 1) = k.key)
          and not exists (select 1 from leasework.job j where leasework.holds(j.lane, j.ready, 2) = k.key)
        limit %(limit)s for update of k skip locked)
    returning 1
), u as (
    update leasework.repeated set at = clock.at from clock
    where (select true from leasework.job j where j.id = repeated.job_id) -- a scalar subquery, which does not read all jobs
), r as (
    delete from leasework.repeated where job_id in (
        select job_id from leasework.repeated, clock
        where repeated.at not between clock.at - interval '2 hours' and clock.at + interval '2 hours'
          and (select true from leasework.job j where j.id = repeated.job_id) is null
        limit %(limit)s)
    returning 1
), p as (
    delete from leasework.step where ctid = any (array(
        select s.ctid from leasework.step s
        where s.at < (select at from clock) - make_interval(days => (select finished + 1 from kept))
          and (select true from leasework.job j where j.id = s.job) is null
          and (select true from leasework.job_done d where d.id = s.job limit 1) is null
        limit %(limit)s))
    returning 1
), i as (
    delete from leasework.inbox where id in (
        select x.id from leasework.inbox x
        where (select true from leasework.job j where j.id = x.job) is null
          and (select case when d.state <> 'completed' then true end from leasework.job_done d where d.id = x.job limit 1) is null limit %(limit)s)
    returning 1
), c as (
    delete from leasework.batch where id in (
        select x.id from leasework.batch x
        where x.ended_at < (select at from clock) - make_interval(days => (select finished + 1 from kept))
          and (select true from leasework.job j where j.id = x.parent) is null limit %(limit)s)
    returning 1
)
select (select gone from e) + (select count(*) from d) + (select count(*) from k) + (select count(*) from s)
       + (select count(*) from l) + (select count(*) from r) + (select count(*) from m)
       + (select count(*) from p) + (select count(*) from i) + (select count(*) from c)
