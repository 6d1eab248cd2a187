-- Seconds until the next moment of any schedule; null when there is none.
-- locks: none
-- index: schedule_next
select extract(epoch from min(next_at) - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8
from leasehold.schedule where app = %(app)s and not paused and next_at is not null
