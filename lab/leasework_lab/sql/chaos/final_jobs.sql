-- The final read: every job of the campaign, with the ref that it was enqueued for. In a user's database, these are
-- the jobs created since the campaign began.
-- locks: none
-- index: scans of job and job_done
select id, task_name, state, payload ->> 'ref', attempt, crashes, schedule, scheduled_for, claim_token, node,
       exists (select 1 from leasework.node n where n.id = j.node)
from leasework.jobs j
where cast(%(since)s as timestamptz) is null or created_at >= %(since)s
