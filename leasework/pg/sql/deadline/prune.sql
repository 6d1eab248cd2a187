-- Delete deadlines that ended long enough ago, and all but the newest thousand run times of a task. Levels of a
-- deadline are never deleted while one of them is open.
-- locks: the rows
-- index: deadline_closed, deadline_pkey, run_time_pkey (all of it)
with old as (
    select d.id, d.level from leasework.deadline d
    where d.closed_at < coalesce(%(now)s::timestamptz, now()) - make_interval(days => %(days)s)
      -- a scalar subquery, because for EXISTS the planner would read all of them
      and (select true from leasework.deadline o where o.id = d.id and o.closed_at is null limit 1) is null
    order by d.closed_at
    limit %(limit)s
), gone as (
    delete from leasework.deadline d using old where d.id = old.id and d.level = old.level returning 1
), runs as (
    delete from leasework.run_time r using (
        select past.* from (select distinct task_name from leasework.run_time) t
        cross join lateral (select x.task_name, x.ended_at, x.job_id from leasework.run_time x
                            where x.task_name = t.task_name
                            order by x.ended_at desc, x.job_id desc offset 1000 limit %(limit)s) past
        limit %(limit)s) past
    where (r.task_name, r.ended_at, r.job_id) = (past.task_name, past.ended_at, past.job_id)
    returning 1
)
select (select count(*) from gone) + (select count(*) from runs)
