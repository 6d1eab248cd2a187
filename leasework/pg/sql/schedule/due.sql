-- Schedules with a due, undecided moment, and the database's time; without the definitions that the caller is known to
-- be unable to decide. A hash identifies these, because a spec edited by hand may be unreadable, or not reproducible,
-- for the caller. If very many are due, half of the limit goes to the newest moments, so that those that are on time do
-- not wait for all that are behind.
-- locks: none
-- index: schedule_next, schedule_pkey
with due as not materialized (
    select d.name, d.next_at from leasework.schedule d
    where d.app = %(app)s and not d.paused and d.next_at <= coalesce(%(now)s::timestamptz, now())
      and not exists (select 1 from jsonb_to_recordset(%(without)s::jsonb) as x (name text, mark bigint, missed text)
                      where (x.name, x.mark, x.missed) = (d.name, jsonb_hash_extended(d.spec, 0), d.missed))
), picked as (
    (select name from due order by next_at limit (%(limit)s::integer + 1) / 2)
    union
    (select name from due order by next_at desc limit %(limit)s::integer / 2)
)
select s.name, s.spec, s.missed, s.grace_seconds, s.release, s.high_water, s.next_at,
       coalesce(%(now)s::timestamptz, now()), jsonb_hash_extended(s.spec, 0), s.former, s.paused_at, s.resumed_at
from picked join leasework.schedule s on s.app = %(app)s and s.name = picked.name
order by s.next_at
