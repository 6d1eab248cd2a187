-- Every schedule with its definition.
-- locks: none
-- index: schedule_pkey (in order), tick_pkey
select app, name, spec, described, task_name, missed, paused, next_at, last_fire_at, last_state, release, in_code,
       case when not in_code and octet_length(job ->> 'payload') <= %(longest)s then job -> 'payload' end
from leasehold.schedules order by app, name limit %(limit)s
