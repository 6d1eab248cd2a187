-- A look at the jobs that wait for their time, the next due first: ids and when they are due.
-- locks: none
-- index: job_waiting; job_pkey, where an id is looked for by its beginning
with looked as materialized (
    select j.id, j.run_at,
           case when j.held_because = 'retryable' then 'retryable' else 'scheduled' end = %(state)s
           and (%(queue)s::text is null or j.queue = %(queue)s)
           and (%(task)s::text is null or j.task_name = %(task)s)
           and (%(nodes)s::uuid[] is null or j.node = any (%(nodes)s::uuid[]))
           and (cardinality(%(paths)s::text[]) = 0 or not exists (
                select 1 from unnest(%(paths)s::text[], %(values)s::text[]) as w (path, value)
                where (j.payload #>> string_to_array(w.path, '.')) is distinct from w.value)) as ok
    from leasehold.job j
    where not j.ready and j.run_at >= %(due)s and (j.run_at, j.id) > (%(due)s, %(after)s)
      and j.id >= %(first)s and j.id <= %(last)s
    order by j.run_at, j.id limit %(scan)s
), found as (
    select id, run_at from looked where ok order by run_at, id limit %(limit)s
), furthest as (
    select id, run_at from looked order by run_at desc, id desc limit 1
)
select (select count(*) from looked), (select run_at from furthest), (select id from furthest),
       array(select id from found order by run_at, id), array(select run_at from found order by run_at, id)
