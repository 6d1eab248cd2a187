-- Each of at most "limit" queues with work: how many jobs are ready, how many of these run, and which available one has
-- been due for longest. It counts a bounded number at the head of each queue, over all its priorities. The
-- oldest is sought at the head of each level of a queue: a bound on (queue, level) pairs would hide the queues after one
-- with many priorities.
-- locks: none
-- index: job_ready (in order)
with recursive line (queue) as (
    (select j.queue from leasework.job j where j.ready order by j.queue, leasework.level(j.priority, j.fresh) limit 1)
    union all
    select n.queue from line l cross join lateral (
        select j.queue from leasework.job j
        where j.ready and j.queue > l.queue
        order by j.queue, leasework.level(j.priority, j.fresh) limit 1) n
), lines as materialized (
    select * from line limit %(limit)s
), most as materialized (
    select greatest(%(most)s::bigint / greatest(count(*), 1), 100) as rows,
           greatest(2000 / greatest(count(*), 1), 10) as lanes
    from lines
), counted as (
    select l.queue, c.n, c.running, o.run_at, o.id
    from lines l
    cross join lateral (
        select count(*) as n, count(node) as running
        from (select j.node from leasework.job j
              where j.ready and j.queue = l.queue
              order by j.queue, leasework.level(j.priority, j.fresh), j.seat limit (select rows from most)) x) c
    left join lateral (
        with recursive lane (level) as (
            (select leasework.level(j.priority, j.fresh) from leasework.job j
             where j.ready and j.queue = l.queue order by 1 limit 1)
            union all
            select n.level from lane p cross join lateral (
                select leasework.level(j.priority, j.fresh) as level from leasework.job j
                where j.ready and j.queue = l.queue and leasework.level(j.priority, j.fresh) > p.level
                order by 1 limit 1) n
        )
        select h.run_at, h.id
        from (select * from lane limit (select lanes from most)) p
        cross join lateral (
            select x.run_at, x.id
            from (select j.run_at, j.id, j.node from leasework.job j
                  where j.ready and j.queue = l.queue and leasework.level(j.priority, j.fresh) = p.level
                  order by j.seat limit (select rows from most)) x
            where x.node is null order by x.run_at, x.id limit 1) h
        order by h.run_at, h.id limit 1) o on true
)
select queue, n, running, n >= (select rows from most) as capped,
       extract(epoch from coalesce(%(now)s::timestamptz, now()) - run_at)::float8, id
from counted
order by queue
