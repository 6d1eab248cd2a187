-- Nodes that died recently and that no person has seen yet, the newest first, with the number of their jobs rescued
-- within a minute, and the tasks of some of them.
-- locks: none
-- index: death_unseen (in order), attempt_ended (in order), job_pkey, job_done_pkey
select d.node, d.worker_id, d.app, d.died_at, r.n,
       (select coalesce(jsonb_agg(distinct t.task), '[]') from unnest(r.jobs[:20]) j (id) cross join lateral (
           select x.task_name as task from leasework.job x where x.id = j.id
           union all
           (select x.task_name from leasework.job_done x where x.id = j.id limit 1)) t)
from leasework.death d
cross join lateral (
    select count(*) as n, array_agg(a.job_id) as jobs from (
        select a.node, a.outcome, a.job_id from leasework.attempt a
        where a.ended_at >= d.died_at and a.ended_at < d.died_at + interval '1 minute'
        order by a.ended_at limit 5000) a
    where a.node = d.node and a.outcome = 'crashed') r
where d.how = 'died' and d.seen_at is null
  and d.died_at > coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(seconds)s)
order by d.died_at desc, d.node limit %(limit)s
