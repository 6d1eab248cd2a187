-- Of each task with attempts of that outcome within "seconds": how many jobs were discarded and were not run again
-- since, how many attempts failed and will be retried, how many jobs finished in the history's minutes, up to when these
-- reach, and the newest error. Only the newest "limit" attempts are counted, and finished jobs only as far back as those
-- reach. For a task without any of these, the history's discarded jobs count, also those that were run again since.
-- locks: none
-- index: attempt_outcome (in order), job_pkey, job_done_pkey, history_pkey (in order)
with clock as materialized (
    select coalesce(%(now)s::timestamptz, now()) as at,
           -- whole minutes, as in the history: both sides of a share begin at the same moment
           date_trunc('minute', coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(seconds)s)) as since
), bad as materialized (
    select a.job_id, a.outcome, a.ended_at, a.error from leasework.attempt a
    where a.outcome = %(outcome)s
      and a.ended_at >= (select since from clock)
    order by a.ended_at desc limit %(limit)s
), span as materialized (
    select case when count(*) >= %(limit)s then min(ended_at)
                else (select since from clock) end as since
    from bad
), counted as materialized (
    select greatest((select max(h.at) from leasework.history h) + interval '1 minute', since) as until from span
), named as (
    select coalesce(j.task_name, d.task_name) as task, b.job_id, d.state, b.outcome, b.ended_at, b.error
    from bad b
    left join leasework.job j on j.id = b.job_id
    left join lateral (
        select x.task_name, x.state from leasework.job_done x
        where x.id = b.job_id and x.finished_at >= b.ended_at - interval '1 minute' limit 1) d on true
), finished as (
    select h.task_name, sum(h.completed + h.cancelled + h.discarded + h.quarantined) as n
    from leasework.history h where h.at >= date_trunc('minute', (select since from span))
    group by 1
), hidden as (
    select h.task_name as task, sum(h.discarded)::bigint as discarded,
           sum(h.completed + h.cancelled + h.discarded + h.quarantined) as n
    from leasework.history h
    where %(outcome)s = 'discarded' and (select count(*) from bad) >= %(limit)s
      and h.at >= (select since from clock)
      and h.task_name <> all (select task from named where task is not null)
    group by 1 having sum(h.discarded) > 0
)
select n.task, count(distinct n.job_id) filter (where n.outcome = 'discarded' and n.state = 'discarded'),
       count(*) filter (where n.outcome = 'retryable'),
       coalesce(max(f.n), 0)::bigint, (select until from counted), left((array_agg(n.error order by n.ended_at desc))[1], 2000)
from named n left join finished f on f.task_name = n.task
where n.task is not null
group by n.task
union all
select task, discarded, 0, n::bigint, (select until from counted), null from hidden
order by 2 desc, 3 desc, 1 limit 100
