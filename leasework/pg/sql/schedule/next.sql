-- Seconds until the next moment of any schedule that the caller can decide (null: there is none), and how far the newest
-- decision is ahead of the clock: more than a little means that the clock was set back. It reads one entry of each
-- index, because the leader looks after each batch of ticks.
-- locks: none
-- index: schedule_next (in order), tick_decided (in order)
select extract(epoch from (
           select s.next_at from leasework.schedule s
           where s.app = %(app)s and not s.paused and s.next_at is not null
             and not exists (
                 select 1 from jsonb_to_recordset(%(without)s::jsonb) as x (name text, mark bigint, missed text)
                 where (x.name, x.mark, x.missed) = (s.name, jsonb_hash_extended(s.spec, 0), s.missed))
           order by s.next_at limit 1) - c.clock)::float8,
       coalesce(extract(epoch from (select max(decided_at) from leasework.tick) - c.clock), 0)::float8
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as clock) c
