-- Begin or continue to wait in a step: see leasework.wait_in_step.
-- locks: job row FOR KEY SHARE
-- index: job_pkey, step_pkey, inbox_pkey
select open, result, still, false
from leasework.wait_in_step(%(job)s, %(token)s, %(node)s, %(name)s, %(kind)s, %(signal)s, %(seconds)s, %(now)s)
