-- The newest ticks of the given schedules, with the outcome of each one's job.
-- locks: none
-- index: tick_pkey, job_pkey, job_done_pkey
select t.app, t.schedule, t.fire_at, t.until, t.state, t.job_id, t.term, t.decided_at,
       extract(epoch from t.decided_at - t.fire_at)::float8, o.outcome,
       extract(epoch from o.ended_at - o.started_at)::float8
from unnest(%(apps)s::text[], %(names)s::text[]) s (app, name)
cross join lateral (select * from leasework.tick x where x.app = s.app and x.schedule = s.name
                    order by x.fire_at desc limit %(each)s) t
cross join lateral leasework.tick_outcome(t.state, t.job_id, coalesce(%(now)s::timestamptz, now())) o
order by t.app, t.schedule, t.fire_at desc
