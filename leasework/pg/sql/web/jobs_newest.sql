-- Scan the newest jobs, at most "scan", for those that match: ids, the newest first.
-- locks: none
-- index: job_pkey, job_done_pkey
with looked as materialized (
    (select j.id, (%(state)s::text is null or %(state)s =
                   case when j.ready and j.node is null or j.held_because = 'limit' then 'available' when j.ready then 'running'
                        when j.held_because = 'retryable' then 'retryable' else 'scheduled' end)
           and {{job/_matches}} as ok
     from leasework.job j
     where %(waiting)s and j.id < %(before)s and j.id >= %(first)s and j.id <= %(last)s
     order by j.id desc limit %(scan)s)
    union all
    (select d.id, (%(state)s::text is null or %(state)s = d.state)
           and {{job/_matches}} as ok
     from leasework.job_done d
     where %(finished)s and d.id < %(before)s and d.id >= %(first)s and d.id <= %(last)s
     order by d.id desc limit %(scan)s)
    order by id desc limit %(scan)s
)
select (select count(*) from looked), (select id from looked order by id limit 1),
       array(select id from looked where ok order by id desc limit %(limit)s)
