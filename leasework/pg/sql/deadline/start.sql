-- A job with deadlines starts: arm the levels that count from its first start. The answer has one row per level, or
-- none if the claim was lost. "average" is armed if there are enough runs to average.
-- locks: the job's deadline rows that wait for this
-- index: job_pkey, deadline_pkey, run_time_pkey
with mine as materialized (
    select id, task_name from leasework.job
    where id = %(job)s and claim_token = %(token)s and node = %(node)s
), armed as (
    update leasework.deadline d
    set state = 'armed',
        due_at = coalesce(%(now)s::timestamptz, clock_timestamp())
                 + make_interval(secs => d.seconds + case d.since when 'average' then r.mean * coalesce(d.factor, 1)
                                                                  else 0 end)
    from mine
    join leasework.deadline w on w.id = mine.id and w.state || '' = 'waiting' -- hidden from deadline_waiting
    left join lateral (
        select case when count(*) >= least(3, w.runs) then avg(seconds) end as mean
        from (select t.seconds from leasework.run_time t where t.task_name = mine.task_name
              order by t.ended_at desc limit w.runs) newest) r on w.since = 'average'
    where d.id = w.id and d.level = w.level and d.state || '' = 'waiting'
      and (d.since = 'started' or r.mean is not null)
    returning d.id, d.level, d.name, d.due_at, d.state
)
select id, level, name, due_at, state from armed
union all
select d.id, d.level, d.name, d.due_at, d.state
from leasework.deadline d join mine on d.id = mine.id
where not exists (select 1 from armed a where a.level = d.level)
order by level
