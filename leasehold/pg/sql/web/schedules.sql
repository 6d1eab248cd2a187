-- Every schedule with its definition.
-- locks: none
-- index: schedule_pkey (in order), tick_pkey
select app, name, spec, described, task_name, missed, paused, next_at, last_fire_at, last_state
from leasehold.schedules order by app, name limit %(limit)s
