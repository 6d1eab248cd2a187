-- Schedules with a moment that is due and not decided, and the database's time; without those
-- definitions of which the asker knows already that it cannot decide them.
-- locks: none
-- index: schedule_next
select s.name, s.spec, s.missed, s.grace_seconds, s.release, s.high_water, s.next_at,
       coalesce(%(now)s::timestamptz, now())
from leasehold.schedule s
where s.app = %(app)s and not s.paused and s.next_at <= coalesce(%(now)s::timestamptz, now())
  and not exists (select 1 from jsonb_to_recordset(%(without)s::jsonb) as x (name text, spec jsonb, missed text)
                  where (x.name, x.spec, x.missed) = (s.name, s.spec, s.missed))
order by s.next_at
limit %(limit)s
