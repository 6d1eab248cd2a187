-- Whether a row of job or job_done matches a filter, apart from its state.
(%(queue)s::text is null or queue = %(queue)s) and (%(task)s::text is null or task_name = %(task)s)
           and (%(nodes)s::uuid[] is null or node = any (%(nodes)s::uuid[]))
           and (%(tag)s::text is null or %(tag)s = any (tags))
           and (cardinality(%(paths)s::text[]) = 0 or not exists (
                select 1 from unnest(%(paths)s::text[], %(values)s::text[]) as w (path, value)
                where (payload #>> string_to_array(w.path, '.')) is distinct from w.value))
