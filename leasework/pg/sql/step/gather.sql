-- Make other jobs in a step: see leasework.gather.
-- edge: new -> available
-- locks: job row FOR KEY SHARE, then the row of a batch that opens again
-- index: job_pkey, step_pkey, batch_pkey, job_batch
select open, result, null, ended
from leasework.gather(%(job)s, %(token)s, %(node)s, %(name)s, %(kind)s, %(batch)s, %(jobs)s::jsonb, %(now)s)
