-- The attempts of one job that did not just complete, the newest first.
-- locks: none
-- index: attempt_pkey, node_pkey, death_pkey
select a.attempt, a.claim_token, (select w.worker_id from leasework.workers w where w.node = a.node),
       a.started_at, a.ended_at, a.outcome, a.error, a.traceback, a.log
from leasework.attempt a where a.job_id = %(job)s
order by a.claim_token desc limit %(limit)s
