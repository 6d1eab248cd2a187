-- Schedules with a moment that is due and not decided, and the database's time; without those
-- definitions of which the asker knows already that it cannot decide them. He knows them by a hash:
-- what a hand wrote into a spec may be nothing that he can read, or write as it was.
-- locks: none
-- index: schedule_next
select s.name, s.spec, s.missed, s.grace_seconds, s.release, s.high_water, s.next_at,
       coalesce(%(now)s::timestamptz, now()), jsonb_hash_extended(s.spec, 0), s.former
from leasehold.schedule s
where s.app = %(app)s and not s.paused and s.next_at <= coalesce(%(now)s::timestamptz, now())
  and not exists (select 1 from jsonb_to_recordset(%(without)s::jsonb) as x (name text, mark bigint, missed text)
                  where (x.name, x.mark, x.missed) = (s.name, jsonb_hash_extended(s.spec, 0), s.missed))
order by s.next_at
limit %(limit)s
