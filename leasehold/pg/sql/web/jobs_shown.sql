-- What a list shows of jobs: not what is long.
-- locks: none
-- index: job_pkey, job_done_pkey, node_pkey, death_pkey
select id, task_name, queue, state, priority, created_at, scheduled_for, started_at, completed_at, attempt,
       max_attempts, worker_id, left(last_error, 2000), progress, progress_note, cancel_requested, held_because,
       schedule, case when pg_column_size(payload) < 2000 then payload end
from leasehold.jobs where id = any (%(ids)s::uuid[])
