-- Each queue with work: how many are ready (counted up to a limit in each priority), and for how
-- long the oldest that could run has been due.
-- locks: none
-- index: job_ready
with recursive lane (queue, priority) as (
    (select j.queue, j.priority from leasehold.job j where j.ready order by j.queue, j.priority limit 1)
    union all
    select n.queue, n.priority from lane l cross join lateral (
        select j.queue, j.priority from leasehold.job j
        where j.ready and (j.queue, j.priority) > (l.queue, l.priority)
        order by j.queue, j.priority limit 1) n
), counted as (
    select l.queue, c.n, h.oldest
    from (select * from lane limit 200) l
    cross join lateral (
        select count(*) as n from (select 1 from leasehold.job j
                                   where j.ready and j.queue = l.queue and j.priority = l.priority
                                   limit %(most)s) x) c
    cross join lateral (
        select min(x.run_at) filter (where x.node is null) as oldest
        from (select j.run_at, j.node from leasehold.job j
              where j.ready and j.queue = l.queue and j.priority = l.priority
              order by j.run_at, j.id limit 1000) x) h
)
select queue, sum(n)::bigint, bool_or(n >= %(most)s),
       extract(epoch from coalesce(%(now)s::timestamptz, now()) - min(oldest))::float8
from counted group by queue order by queue
