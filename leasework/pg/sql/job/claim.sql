-- Claim jobs of some queues for a node, best first: see leasework.claim.
-- edge: available -> running
-- locks: own node row FOR KEY SHARE (its death waits for us), the turn at the queue, job rows FOR UPDATE SKIP LOCKED
-- index: job_ready, node_pkey
select id, task_name, queue, payload, priority, attempt, max_attempts, crashes, claim_token, timeout_seconds,
    requeue_seconds, scheduled_for, history, schedule, deadlines, trace, version, seen
from leasework.claim(%(node)s, %(epoch)s, %(queues)s, %(limits)s, %(not_tasks)s, %(server)s, %(unsettled)s, %(settled)s,
    %(asks)s, %(range_queue)s, %(range_level)s, %(range_until)s, %(range_begin)s, %(range_shared)s, %(now)s)
