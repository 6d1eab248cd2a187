-- Jobs by state, queue and task, newest first.
-- locks: none
-- index: none that covers every filter; the limit bounds the answer
select id, task_name, queue, payload, state, priority, created_at, scheduled_for, started_at, completed_at, attempt,
       max_attempts, claim_token, worker_id, last_error, result, progress, progress_note, cancel_requested, crashes,
       held_because
from leasehold.jobs
where (%(state)s::text is null or state = %(state)s)
  and (%(queue)s::text is null or queue = %(queue)s)
  and (%(task)s::text is null or task_name = %(task)s)
order by created_at desc, id desc
limit %(limit)s
