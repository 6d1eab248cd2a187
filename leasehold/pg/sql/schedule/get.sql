-- A schedule that was put at run time, or that the code defines.
-- locks: none
-- index: schedule_pkey, tick_pkey
select app, name, described, task_name, missed, paused, next_at, last_fire_at, last_state, release, high_water, in_code,
       spec, job, grace_seconds
from leasehold.schedules where app = %(app)s and name = %(name)s
