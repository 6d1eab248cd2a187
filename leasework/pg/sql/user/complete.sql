-- Complete a job in the user's transaction: its effects and its completion commit together. If the claim was lost, the
-- statement fails, and the transaction with it, so that it cannot be committed by mistake. If a client vanishes during
-- its transaction, the server ends the session after "idle_ms" idle, which frees the row.
-- edge: running -> completed
-- locks: job row, then its unique key
-- index: job_pkey, job_key_pkey
with gone as (
    delete from leasework.job
    where id = cast(%(job)s as uuid) and claim_token = cast(%(token)s as bigint)
      and node = cast(%(node)s as uuid)
    returning *, 'completed' as ended, coalesce(started_at, claimed_at) as began,
              cast(cast(%(result)s as text) as jsonb) as result, last_error as error, 0 as undone, 0 as crashed
), {{job/_finish}}, {{user/_idle}}
select case when exists (select 1 from gone) then 1 else leasework.refuse('the claim was lost') end, idle_ms
from idle
