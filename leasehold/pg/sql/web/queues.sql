-- Each queue with work: how many are ready, and for how long the oldest that could run has been due.
-- So many are counted at the head of each queue and priority; where there are more, the planner's
-- statistics give an estimate (null: there are none yet).
-- locks: none
-- index: job_ready
with recursive lane (queue, priority) as (
    (select j.queue, j.priority from leasehold.job j where j.ready order by j.queue, j.priority limit 1)
    union all
    select n.queue, n.priority from lane l cross join lateral (
        select j.queue, j.priority from leasehold.job j
        where j.ready and (j.queue, j.priority) > (l.queue, l.priority)
        order by j.queue, j.priority limit 1) n
), lanes as materialized (
    select * from lane limit 200
), most as materialized (
    select greatest(%(most)s::bigint / greatest(count(*), 1), 100) as rows from lanes
), counted as (
    select l.queue, c.n, c.oldest
    from lanes l
    cross join lateral (
        select count(*) as n, min(x.run_at) filter (where x.node is null) as oldest
        from (select j.run_at, j.node from leasehold.job j
              where j.ready and j.queue = l.queue and j.priority = l.priority
              order by j.run_at, j.id limit (select rows from most)) x) c
), common as (
    select v.queue, v.share * c.reltuples as rows
    from pg_class c
    join pg_stats s on s.schemaname = 'leasehold' and s.tablename = 'job' and s.attname = 'queue'
    cross join lateral unnest(s.most_common_vals::text::text[], s.most_common_freqs) as v (queue, share)
    where c.oid = 'leasehold.job'::regclass and c.reltuples > 0
)
select t.queue, t.n, t.capped, t.oldest_seconds,
       (select greatest(c.rows, t.n)::bigint from common c where t.capped and c.queue = t.queue)
from (
    select queue, sum(n)::bigint as n, bool_or(n >= (select rows from most)) as capped,
           extract(epoch from coalesce(%(now)s::timestamptz, now()) - min(oldest))::float8 as oldest_seconds
    from counted group by queue) t
order by t.queue
