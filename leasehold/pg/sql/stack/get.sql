-- What was asked for last of a job, and answered.
-- locks: none
-- index: stack_pkey
select request, claim_token, asked_at, answered_at, says from leasehold.stack where job_id = %(job)s
