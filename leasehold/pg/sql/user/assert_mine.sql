-- Is this claim still ours? The row stays locked until the user's transaction ends, so that nobody
-- takes the job away before. If it is not, the statement fails and the transaction with it.
-- locks: job row FOR SHARE
-- index: job_pkey
with mine as materialized (
    select id from leasehold.job
    where id = cast(%(job)s as uuid) and claim_token = cast(%(token)s as bigint) and node = cast(%(node)s as uuid)
    for share
)
select case when exists (select 1 from mine) then 1 else leasehold.refuse('the claim was lost') end
