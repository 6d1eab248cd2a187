-- Assert that this claim is still ours, and lock the row until the user's transaction ends, so that nobody takes the
-- job away before. If the claim was lost, the statement fails, and the transaction with it. If a client vanishes during
-- its transaction, the server ends the session after "idle_ms" idle, which frees the row.
-- locks: job row FOR SHARE
-- index: job_pkey
with mine as materialized (
    select id from leasehold.job
    where id = cast(%(job)s as uuid) and claim_token = cast(%(token)s as bigint) and node = cast(%(node)s as uuid)
    for share
), idle as materialized (
    select cast(setting as bigint) as now_ms, cast(%(idle_ms)s as bigint) as wanted_ms
    from pg_settings where name = 'idle_in_transaction_session_timeout'
)
select case when exists (select 1 from mine) then 1 else leasehold.refuse('the claim was lost') end,
       set_config('idle_in_transaction_session_timeout',
                  cast(case when now_ms between 1 and wanted_ms then now_ms else wanted_ms end as text), true)
from idle
