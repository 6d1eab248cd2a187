-- How late schedules are, for checks and metrics: first those that are late, ahead of the clock, or paused.
-- locks: none
-- index: a scan of schedule
select app, name, paused, greatest(case when not paused then extract(epoch from clock - next_at) end, 0)::float8 as late,
       greatest(extract(epoch from high_water - clock), 0)::float8 as ahead
from leasework.schedule, coalesce(%(now)s::timestamptz, now()) as clock
order by late desc, ahead desc, paused desc, app, name limit %(limit)s
