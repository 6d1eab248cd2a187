-- Scan the jobs that wait for their time, the next due first: ids and when they are due.
-- locks: none
-- index: job_waiting, attempt_pkey, step_pkey; job_pkey, where an id is looked for by its beginning
with looked as materialized (
    select j.id, j.run_at,
           case when j.held_because = 'retryable' then 'retryable' else 'scheduled' end = %(state)s
           and {{job/_matches}} as ok
    from (select *, greatest(claimed_at, created_at) as changed from leasework.job) j
    where not j.ready and j.held_because is distinct from 'limit' and j.run_at >= %(due)s and (j.run_at, j.id) > (%(due)s, %(after)s)
      and j.id >= %(first)s and j.id <= %(last)s
    order by j.run_at, j.id limit %(scan)s
), found as (
    select id, run_at from looked where ok order by run_at, id limit %(limit)s
), furthest as (
    select id, run_at from looked order by run_at desc, id desc limit 1
)
select (select count(*) from looked), (select run_at from furthest), (select id from furthest),
       array(select id from found order by run_at, id), array(select run_at from found order by run_at, id)
