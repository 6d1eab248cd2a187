-- The last request for a job's stack, and its answer.
-- locks: none
-- index: stack_pkey
select request, claim_token, asked_at, answered_at, says from leasework.stack where job_id = %(job)s
