-- Seconds until the next moment of any schedule that the caller can decide (null: there is none), and how far the
-- furthest decided moment is ahead of the clock: more than a little means that the clock was set back.
-- locks: none
-- index: schedule_next
select extract(epoch from min(next_at) - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8,
       coalesce(extract(epoch from max(high_water) - coalesce(%(now)s::timestamptz, clock_timestamp())), 0)::float8
from leasehold.schedule s where app = %(app)s and not paused and next_at is not null
  and not exists (select 1 from jsonb_to_recordset(%(without)s::jsonb) as x (name text, mark bigint, missed text)
                  where (x.name, x.mark, x.missed) = (s.name, jsonb_hash_extended(s.spec, 0), s.missed))
