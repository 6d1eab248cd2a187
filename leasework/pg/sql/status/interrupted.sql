-- Of each task, the unfinished jobs whose last "runs" runs were all interrupted by a stop of their worker: how many, one
-- of them, and its longest run. Only jobs of the newest "limit" interrupted runs are found.
-- locks: none
-- index: attempt_outcome (in order), attempt_pkey (in order), job_pkey
with lately as materialized (
    select distinct a.job_id from (
        select job_id from leasework.attempt where outcome = 'stopped' order by ended_at desc limit %(limit)s) a
)
select j.task_name, count(*), (array_agg(j.id order by r.seconds desc))[1], max(r.seconds)
from lately l
join leasework.job j on j.id = l.job_id
cross join lateral (
    select count(*) filter (where a.outcome = 'stopped') as stops,
           max(extract(epoch from a.ended_at - a.started_at))::float8 as seconds
    from (select * from leasework.attempt x where x.job_id = j.id order by x.claim_token desc limit %(runs)s) a) r
where r.stops >= %(runs)s
group by j.task_name
order by 2 desc, 1 limit 100
