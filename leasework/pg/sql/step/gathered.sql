-- Copy the results of an ended batch to the step that waited for it: see leasework.gathered.
-- locks: job row FOR KEY SHARE
-- index: job_pkey, step_pkey, job_batch, job_done_batch
select leasework.gathered(%(job)s, %(token)s, %(node)s, %(name)s, %(now)s)
