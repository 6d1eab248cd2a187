-- The final read: every job, with what the campaign enqueued it for.
-- locks: none
-- index: scans of job and job_done
select id, task_name, state, payload ->> 'ref', attempt, crashes, schedule, scheduled_for, claim_token, node,
       exists (select 1 from leasehold.node n where n.id = j.node)
from leasehold.jobs j
