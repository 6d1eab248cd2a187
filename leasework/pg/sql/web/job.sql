-- What the view does not show of one unfinished job, and how many ready jobs are before it.
-- locks: none
-- index: job_pkey, job_ready
select j.run_at, j.claimed_at, j.started_at, j.node, j.unique_key, j.requeue_seconds, j.timeout_seconds, j.history,
       j.ready, j.held_because, j.schedule, j.tick_at,
       (select count(*) from (
            select 1 from leasework.job x
            where x.ready and x.node is null and x.queue = j.queue and j.ready
              and (leasework.level(x.priority, x.fresh), x.seat) < (leasework.level(j.priority, j.fresh), j.seat)
            limit 1000) a),
       coalesce(%(now)s::timestamptz, now()), j.version
from leasework.job j where j.id = %(job)s
