-- The times of schedules, for checks and metrics: first those of which a check says something.
-- locks: none
-- index: none; a scan of schedule
select app, name, paused, next_at, high_water
from leasehold.schedule, coalesce(%(now)s::timestamptz, now()) as now, make_interval(secs => %(seconds)s) as little
order by (not paused and next_at < now - little) is true desc, (high_water > now + little) is true desc, paused desc,
         app, name
limit %(limit)s
