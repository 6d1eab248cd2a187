-- The newest entries of the ledger, with the outcome of each one's job: "unknown" if nothing is kept of it.
-- locks: none
-- index: a scan of tick; job_pkey, job_done_pkey
with newest as materialized (
    select app, schedule, fire_at, until, state, job_id, term, decided_at, lateness
    from leasehold.ticks
    where %(schedule)s::text is null or schedule = %(schedule)s
    order by fire_at desc limit %(limit)s
)
select t.app, t.schedule, t.fire_at, t.until, t.state, t.job_id, t.term, t.decided_at,
       extract(epoch from t.lateness)::float8, o.outcome,
       extract(epoch from o.ended_at - o.started_at)::float8
from newest t, lateral leasehold.tick_outcome(t.state, t.job_id, coalesce(%(now)s::timestamptz, now())) o
order by t.fire_at desc
