-- The columns that a job takes along to the history as they are, and back when it runs again.
id, queue, task_name, priority, created_at, max_attempts, timeout_seconds, schedule, tick_at, tags, payload
