-- Whether a row of job or job_done matches a filter, apart from its state. "changed" is when it ended, or else began to
-- run, or else was created. The text of an object has the secrets in it, which are masked: it matches nothing.
-- index: attempt_pkey, step_pkey
(%(queue)s::text is null or queue = %(queue)s) and (%(task)s::text is null or task_name = %(task)s)
           and (%(nodes)s::uuid[] is null or node = any (%(nodes)s::uuid[]))
           and (%(tag)s::text is null or %(tag)s = any (tags)) and (%(batch)s::uuid is null or batch = %(batch)s)
           and changed between coalesce(%(since)s::timestamptz, '-infinity') and coalesce(%(until)s::timestamptz, 'infinity')
           and (cardinality(%(fields)s::text[]) = 0 or not exists (
                select 1 from unnest(%(fields)s::text[], %(patterns)s::text[], %(wants)s::boolean[]) as w (field, pattern, want)
                where want <> coalesce(case field
                    when 'queue' then queue like pattern
                    when 'task' then task_name like pattern
                    when 'schedule' then schedule like pattern
                    when 'tag' then exists (select 1 from unnest(tags) t where t like pattern)
                    when 'signal' then exists (select 1 from leasework.step s where s.job = id and s.open and s.kind = 'event'
                                               and (s.name like pattern or s.name like pattern || '[%%'))
                    when 'error' then last_error ilike pattern
                    when 'fingerprint' then pattern = (
                        select a.fingerprint from leasework.attempt a where a.job_id = id and a.fingerprint is not null
                        order by a.claim_token desc limit 1)
                    else (payload #>> string_to_array(substr(field, 6), '.')) like pattern and not
                         (payload #> string_to_array(substr(field, 6), '.')) @? '$.** ? (@.type() == "object")' end, false)))
