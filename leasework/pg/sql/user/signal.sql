-- Send a signal to a job in the user's transaction: see leasework.send_signal.
-- edge: scheduled -> available
-- locks: job row FOR NO KEY UPDATE
-- index: job_pkey
select leasework.send_signal(cast(%(job)s as uuid), cast(cast(%(name)s as text) as jsonb) ->> 'name',
                             cast(cast(%(payload)s as text) as jsonb))
