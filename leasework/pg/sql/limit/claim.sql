-- Claim jobs that wait for limits or in a fair queue: see leasework.claim_limited.
-- edge: available -> running
-- locks: own node row FOR KEY SHARE, rows of limit_key FOR NO KEY UPDATE SKIP LOCKED (or those of one lane, in order), job
--        rows FOR UPDATE SKIP LOCKED
-- index: job_lane, job_holds_1, job_holds_2, limit_key_pkey, limits_pkey, weight_pkey, pause_pkey, node_pkey
select id, task_name, queue, payload, priority, attempt, max_attempts, crashes, claim_token, timeout_seconds,
    requeue_seconds, scheduled_for, history, schedule, deadlines, trace, version, lane, start_in
from leasework.claim_limited(%(node)s, %(epoch)s, %(queue)s, %(asked_wanted)s, %(not_tasks)s,
    %(asked_hints)s::text[], %(asked_after)s, %(asked_visits)s, %(asked_phase)s, %(asked_cursors)s, %(ahead)s)
