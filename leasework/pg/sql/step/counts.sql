-- Suspended jobs, signals that nobody has taken, and open batches, for checks and metrics. Counts end at 10,000. A batch is
-- stuck if an hour after it was made no live node knows the task of any job that is left; the 100 oldest are looked at.
-- locks: none
-- index: job_waiting (in order), batch_open (in order), inbox_id (in order), job_batch, job_pkey
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as at
), untaken as materialized ( -- a failed job keeps its signals, for when a person runs it again
    select i.job, i.at, i.id from leasework.inbox i
    where (select true from leasework.job j where j.id = i.job) order by i.id limit 10000
), suspended as materialized (
    select held_because, run_at from leasework.job
    where not ready and held_because is distinct from 'limit' and held_because in ('sleep', 'event', 'gather')
    order by run_at limit 10000
)
select (select coalesce(jsonb_object_agg(held_because, jobs), '{}') from (
            select held_because, count(*) as jobs from suspended group by 1) x),
       (select count(*) from suspended, clock where run_at < clock.at - interval '1 minute'),
       (select count(*) from untaken),
       (select extract(epoch from clock.at - u.at)::float8 from clock, untaken u order by u.id limit 1),
       (select job from untaken order by id limit 1),
       (select count(*) from (select 1 from leasework.batch where ended_at is null limit 10000) x),
       (select b.id from (select id from leasework.batch, clock
                          where ended_at is null and made_at < clock.at - interval '1 hour'
                          order by made_at limit 100) b
        where exists (select 1 from leasework.job j where j.batch = b.id)
          and not exists (select 1 from leasework.job j where j.batch = b.id
                          and j.held_because is distinct from 'unknown_task'
                          and j.held_because is distinct from 'unknown_version')
        limit 1)
