-- The columns that are copied when a job moves to the history, and back when it runs again.
id, queue, task_name, priority, created_at, max_attempts, timeout_seconds, schedule, tick_at, tags, version,
on_failure, on_success, batch, payload, lane, costs
