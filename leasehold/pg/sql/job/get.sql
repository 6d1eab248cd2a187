-- One job, wherever it is.
-- locks: none
-- index: job_pkey, job_done_pkey, node_pkey, death_pkey
select id, task_name, queue, payload, state, priority, created_at, scheduled_for, started_at, completed_at, attempt,
       max_attempts, claim_token, worker_id, last_error, result, progress, progress_note, cancel_requested, crashes,
       held_because
from leasehold.jobs where id = %(job)s
