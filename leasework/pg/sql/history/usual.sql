-- How long the runs of these tasks took within the last day: jobs by class of duration. At most 300 minutes of each.
-- Tasks none of whose jobs has completed are left out.
-- locks: none
-- index: history_task
select t.name, u.run
from unnest(%(tasks)s::text[]) t (name)
cross join lateral (
    select jsonb_object_agg(class, n) as run from (
        select r.key as class, sum(r.value::bigint) as n
        from (select h.run from leasework.history h
              where h.task_name = t.name and h.at > coalesce(%(now)s::timestamptz, now()) - interval '1 day'
              order by h.at desc limit 300) h
        cross join lateral jsonb_each_text(h.run) r
        group by 1) x) u
where u.run is not null
