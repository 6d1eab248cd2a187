-- Schedules with a due, undecided moment, and the database's time; without the definitions that the caller is known to
-- be unable to decide. A hash identifies these, because a spec edited by hand may be unreadable, or not reproducible,
-- for the caller.
-- locks: none
-- index: schedule_next
select s.name, s.spec, s.missed, s.grace_seconds, s.release, s.high_water, s.next_at,
       coalesce(%(now)s::timestamptz, now()), jsonb_hash_extended(s.spec, 0), s.former, s.paused_at, s.resumed_at
from leasehold.schedule s
where s.app = %(app)s and not s.paused and s.next_at <= coalesce(%(now)s::timestamptz, now())
  and not exists (select 1 from jsonb_to_recordset(%(without)s::jsonb) as x (name text, mark bigint, missed text)
                  where (x.name, x.mark, x.missed) = (s.name, jsonb_hash_extended(s.spec, 0), s.missed))
order by s.next_at
limit %(limit)s
