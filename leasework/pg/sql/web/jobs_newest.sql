-- Scan the newest jobs, at most "scan", for those that match: ids, the newest first.
-- locks: none
-- index: job_pkey, job_done_pkey, attempt_pkey, step_pkey
with looked as materialized (
    (select j.id, {{job/_state}} = coalesce(%(state)s::text, {{job/_state}}) and {{job/_state}} <> all (%(not_states)s::text[])
           and {{job/_matches}} as ok
     from (select *, greatest(claimed_at, created_at) as changed from leasework.job) j
     where %(waiting)s and j.id < %(before)s and j.id >= %(first)s and j.id <= %(last)s
     order by j.id desc limit %(scan)s)
    union all
    (select d.id, (%(state)s::text is null or %(state)s = d.state) and d.state <> all (%(not_states)s::text[])
           and {{job/_matches}} as ok
     from (select *, finished_at as changed from leasework.job_done) d
     where %(finished)s and d.id < %(before)s and d.id >= %(first)s and d.id <= %(last)s
       and d.finished_at >= coalesce(date_trunc('day', %(since)s::timestamptz, 'UTC'), '-infinity') -- whole days: none is passed over
     order by d.id desc limit %(scan)s)
    order by id desc limit %(scan)s
)
select (select count(*) from looked), (select id from looked order by id limit 1),
       array(select id from looked where ok order by id desc limit %(limit)s)
