-- Send a signal to a job: see leasework.send_signal.
-- edge: scheduled -> available
-- locks: job row FOR NO KEY UPDATE
-- index: job_pkey
select leasework.send_signal(%(job)s, %(name)s, %(payload)s::jsonb, %(now)s)
