-- Suspended jobs, signals that nobody has taken, and open batches, for checks and metrics. Each is counted up to 10,000.
-- locks: none
-- index: job_waiting (in order), batch_open; a scan of inbox
select (select coalesce(jsonb_object_agg(because, jobs), '{}') from (
            select held_because as because, count(*) as jobs from (
                select held_because from leasework.job
                where not ready and held_because is distinct from 'limit' and held_because in ('sleep', 'event', 'gather')
                limit 10000) x group by 1) y),
       (select count(*) from (select 1 from leasework.inbox limit 10000) x),
       (select extract(epoch from coalesce(%(now)s::timestamptz, now()) - min(at))::float8
        from (select at from leasework.inbox order by id limit 1) x),
       (select job from leasework.inbox order by id limit 1),
       (select count(*) from (select 1 from leasework.batch where ended_at is null limit 10000) x),
       (select extract(epoch from coalesce(%(now)s::timestamptz, now()) - min(made_at))::float8
        from leasework.batch where ended_at is null)
