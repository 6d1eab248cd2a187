-- Assert that this claim is still ours, and lock the row until the user's transaction ends, so that nobody takes the
-- job away before. If the claim was lost, the statement fails, and the transaction with it. If a client vanishes during
-- its transaction, the server ends the session after "idle_ms" idle, which frees the row.
-- locks: job row FOR SHARE
-- index: job_pkey
with mine as materialized (
    select id from leasework.job
    where id = cast(%(job)s as uuid) and claim_token = cast(%(token)s as bigint) and node = cast(%(node)s as uuid)
    for share
), {{user/_idle}}
select case when exists (select 1 from mine) then 1 else leasework.refuse('the claim was lost') end, idle_ms
from idle
