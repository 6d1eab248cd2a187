-- Is this claim still ours? The row stays locked until the user's transaction ends, so that nobody
-- takes the job away before.
-- locks: job row FOR SHARE
-- index: job_pkey
select cast(id as text) from leasehold.job
where id = cast(%(job)s as uuid) and claim_token = cast(%(token)s as bigint) and node = cast(%(node)s as uuid)
for share
