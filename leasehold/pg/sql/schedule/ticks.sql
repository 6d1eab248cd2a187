-- The newest entries of the ledger.
-- locks: none
-- index: a scan of tick
select app, schedule, fire_at, until, state, job_id, term, decided_at, extract(epoch from lateness)::float8
from leasehold.ticks
where %(schedule)s::text is null or schedule = %(schedule)s
order by fire_at desc limit %(limit)s
