-- Counts for status, each capped, so that a full queue needs no scan. The job that has been due for longest is at the
-- head of a level of a queue.
-- locks: none
-- index: job_ready (in order), job_waiting (in order), job_unknown (in order), job_done_bad
with recursive lane (queue, level) as (
    (select j.queue, leasework.level(j.priority, j.fresh) from leasework.job j where j.ready order by 1, 2 limit 1)
    union all
    select n.queue, n.level from lane l cross join lateral (
        select j.queue, leasework.level(j.priority, j.fresh) as level from leasework.job j
        where j.ready and (j.queue, leasework.level(j.priority, j.fresh)) > (l.queue, l.level)
        order by 1, 2 limit 1) n
), head as materialized (
    select l.queue, h.run_at
    from (select * from lane limit 10000) l
    cross join lateral (
        select j.run_at from leasework.job j
        where j.ready and j.node is null and j.queue = l.queue and leasework.level(j.priority, j.fresh) = l.level
        order by j.seat limit 1) h
)
select (select count(*) from (select 1 from leasework.job where ready limit 10000) x),
       (select count(*) from (select 1 from leasework.job where not ready limit 10000) x),
       (select count(*) from (select 1 from leasework.job where held_because in ('unknown_task', 'unknown_version')
                              and not ready limit 10000) x),
       (select count(*) from (select 1 from leasework.job_done where state = 'quarantined' limit 10000) x),
       (select coalesce(jsonb_agg(distinct task), '[]')
        from (select leasework.needs(task_name, version) as task from leasework.job
              where held_because in ('unknown_task', 'unknown_version') and not ready limit 1000) x),
       (select coalesce(jsonb_object_agg(queue, seconds), '{}')
        from (select queue, extract(epoch from coalesce(%(now)s::timestamptz, now()) - min(run_at))::float8 as seconds
              from head group by queue) x),
       leasework.undated()
