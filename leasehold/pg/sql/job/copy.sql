-- Bulk insert of jobs that are due at once and hold no key.
-- edge: new -> available
-- locks: inserts only
-- index: job_pkey
copy leasehold.job (id, queue, task_name, priority, max_attempts, timeout_seconds, requeue_seconds, history, trace,
                    payload)
from stdin
