-- Schedules with a moment that is due and not decided, and the database's time.
-- locks: none
-- index: schedule_next
select s.name, s.spec, s.missed, s.grace_seconds, s.release, s.high_water, s.next_at,
       coalesce(%(now)s::timestamptz, now())
from leasehold.schedule s
where s.app = %(app)s and not s.paused and s.next_at <= coalesce(%(now)s::timestamptz, now())
order by s.next_at
limit %(limit)s
