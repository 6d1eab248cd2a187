-- Hold the fence of a leader or a lock until the user's transaction ends, so that nobody can take it over before. If
-- the term was lost, the statement fails, and the transaction with it. If a client vanishes during its transaction, the
-- server ends the session after "idle_ms" idle, which frees the fence.
-- locks: fence row FOR SHARE
-- index: fence_pkey
with mine as materialized (
    select token from leasehold.fence
    where name = (cast(cast(%(name)s as text) as jsonb) #>> '{}') and token = cast(%(token)s as bigint)
    for share
), idle as materialized (
    select cast(setting as bigint) as now_ms, cast(%(idle_ms)s as bigint) as wanted_ms
    from pg_settings where name = 'idle_in_transaction_session_timeout'
)
select case when not exists (select 1 from mine) then leasehold.refuse('the lease was lost') end,
       set_config('idle_in_transaction_session_timeout',
                  cast(case when now_ms between 1 and wanted_ms then now_ms else wanted_ms end as text), true)
from idle
