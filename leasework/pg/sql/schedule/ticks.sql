-- The newest entries of the ledger, of one schedule (by moment) or of all (by decision), with the outcome of each one's
-- job: "unknown" if nothing is kept of it. Applications are found one after the other in the index.
-- locks: none
-- index: tick_decided (in order), tick_pkey (in order), job_pkey, job_done_pkey
with recursive apps as (
    select min(t.app) as app from leasework.tick t
    union all
    select (select min(t.app) from leasework.tick t where t.app > a.app) from apps a where a.app is not null
), newest as materialized (
    (select t.* from leasework.tick t where %(schedule)s::text is null order by t.decided_at desc limit %(limit)s)
    union all
    (select t.* from apps a cross join lateral (
         select x.* from leasework.tick x where x.app = a.app and x.schedule = %(schedule)s
         order by x.fire_at desc limit %(limit)s) t)
)
select t.app, t.schedule, t.fire_at, t.until, t.state, t.job_id, t.term, t.decided_at,
       extract(epoch from t.decided_at - t.fire_at)::float8, o.outcome,
       extract(epoch from o.ended_at - o.started_at)::float8
from newest t, lateral leasework.tick_outcome(t.state, t.job_id, coalesce(%(now)s::timestamptz, now())) o
order by t.fire_at desc limit %(limit)s
