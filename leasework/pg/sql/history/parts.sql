-- The history of a queue, of a task, or of all, in parts of "step" seconds from "since": the parts with jobs, the oldest
-- first. Classes of durations are added up, of each minute that "every" divides: of many days that is enough.
-- locks: none
-- index: history_pkey, history_task
with minutes as materialized (
    select date_bin(make_interval(secs => %(step)s), h.at, %(since)s) as part, h.*
    from leasework.history h
    where h.at >= %(since)s and (%(queue)s::text is null or h.queue = %(queue)s)
      and (%(task)s::text is null or h.task_name = %(task)s)
), classes as (
    select part, name, jsonb_object_agg(class, n) as counts
    from (select m.part, t.name, c.key as class, sum(c.value::bigint) as n
          from minutes m cross join lateral (values ('wait', m.wait), ('run', m.run)) t (name, counts)
          cross join lateral jsonb_each_text(t.counts) c
          where (extract(epoch from m.at)::bigint / 60) %% %(every)s = 0
          group by 1, 2, 3) x
    group by 1, 2
)
select m.part, '', '', sum(m.completed)::bigint, sum(m.cancelled)::bigint, sum(m.discarded)::bigint,
       sum(m.quarantined)::bigint, sum(m.failed)::bigint,
       coalesce((select c.counts from classes c where c.part = m.part and c.name = 'wait'), '{}'),
       coalesce((select c.counts from classes c where c.part = m.part and c.name = 'run'), '{}')
from minutes m group by m.part order by m.part
