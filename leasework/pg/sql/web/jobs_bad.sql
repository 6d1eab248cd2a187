-- Scan the newest jobs that ended in one state other than completed: ids, the newest first.
-- locks: none
-- index: job_done_bad, attempt_pkey, step_pkey
with looked as materialized (
    select d.id, {{job/_matches}} as ok
    from (select *, finished_at as changed from leasework.job_done) d
    where d.state <> 'completed' and d.state = %(state)s and d.id < %(before)s and d.id >= %(first)s
      and d.id <= %(last)s and d.finished_at >= coalesce(date_trunc('day', %(since)s::timestamptz, 'UTC'), '-infinity') -- whole days: none is passed over
    order by d.id desc limit %(scan)s
)
select (select count(*) from looked), (select id from looked order by id limit 1),
       array(select id from looked where ok order by id desc limit %(limit)s)
