-- Hold the fence of a leader or a lock until the user's transaction ends, so that nobody can take it over before. If
-- the term was lost, the statement fails, and the transaction with it. If a client vanishes during its transaction, the
-- server ends the session after "idle_ms" idle, which frees the fence.
-- locks: fence row FOR SHARE
-- index: fence_pkey
with mine as materialized (
    select token from leasework.fence
    where name = (cast(cast(%(name)s as text) as jsonb) #>> '{}') and token = cast(%(token)s as bigint)
    for share
), {{user/_idle}}
select case when not exists (select 1 from mine) then leasework.refuse('the lease was lost') end, idle_ms
from idle
