-- Schedules by application and name, behind a given one.
-- locks: none
-- index: schedule_pkey (in order), tick_pkey
select app, name, described, task_name, missed, paused, next_at, last_fire_at, last_state, release, high_water, in_code,
       spec, case when octet_length(job ->> 'payload') > %(longest)s then job - 'payload' else job end, grace_seconds
from leasework.schedules
where (app, name) > (%(after_app)s, %(after)s) and (%(app)s::text is null or app = %(app)s)
  and (%(name)s::text is null or name = %(name)s) and starts_with(name, %(prefix)s)
order by app, name limit %(limit)s
