-- Complete a job in the user's transaction: its effects and its completion commit together. If the claim was lost, the
-- statement fails, and the transaction with it, so that it cannot be committed by mistake. If a client vanishes during
-- its transaction, the server ends the session after "idle_ms" idle, which frees the row.
-- edge: running -> completed
-- locks: job row, then its unique key
-- index: job_pkey, job_key_pkey
with gone as (
    delete from leasehold.job
    where id = cast(%(job)s as uuid) and claim_token = cast(%(token)s as bigint)
      and node = cast(%(node)s as uuid)
    returning *, 'completed' as ended, coalesce(started_at, claimed_at) as began,
              cast(cast(%(result)s as text) as jsonb) as result, last_error as error, 0 as undone, 0 as crashed
), {{job/_finish}}, idle as materialized (
    select cast(setting as bigint) as now_ms, cast(%(idle_ms)s as bigint) as wanted_ms
    from pg_settings where name = 'idle_in_transaction_session_timeout'
)
select case when exists (select 1 from gone) then 1 else leasehold.refuse('the claim was lost') end,
       set_config('idle_in_transaction_session_timeout',
                  cast(case when now_ms between 1 and wanted_ms then now_ms else wanted_ms end as text), true)
from idle
