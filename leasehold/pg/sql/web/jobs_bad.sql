-- A look at the newest jobs that ended in one state other than completed: ids, the newest first.
-- locks: none
-- index: job_done_bad
with looked as materialized (
    select d.id, (%(queue)s::text is null or d.queue = %(queue)s)
           and (%(task)s::text is null or d.task_name = %(task)s)
           and (%(nodes)s::uuid[] is null or d.node = any (%(nodes)s::uuid[]))
           and (cardinality(%(paths)s::text[]) = 0 or not exists (
                select 1 from unnest(%(paths)s::text[], %(values)s::text[]) as w (path, value)
                where (d.payload #>> string_to_array(w.path, '.')) is distinct from w.value)) as ok
    from leasehold.job_done d
    where d.state <> 'completed' and d.state = %(state)s and d.id < %(before)s and d.id >= %(first)s
      and d.id <= %(last)s
    order by d.id desc limit %(scan)s
)
select (select count(*) from looked), (select id from looked order by id limit 1),
       array(select id from looked where ok order by id desc limit %(limit)s)
