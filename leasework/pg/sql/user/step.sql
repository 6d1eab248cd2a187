-- Record a step in the user's transaction: its effects and its record commit together. If the claim was lost, the
-- statement fails, and the transaction with it. A step that is recorded already fails by its key.
-- locks: job row FOR KEY SHARE
-- index: job_pkey, step_pkey
with mine as materialized (
    select id from leasework.job
    where id = cast(%(job)s as uuid) and claim_token = cast(%(token)s as bigint) and node = cast(%(node)s as uuid)
    for key share
), {{user/_idle}}, kept as (
    insert into leasework.step (job, name, kind, token, result, seconds, at)
    select id, cast(cast(%(name)s as text) as jsonb) ->> 'name', 'step', cast(%(token)s as bigint),
           cast(cast(%(result)s as text) as jsonb), cast(%(seconds)s as real), coalesce(cast(%(now)s as timestamptz), clock_timestamp()) from mine
    returning 1
)
select case when exists (select 1 from kept) then 1 else leasework.refuse('the claim was lost') end, idle_ms
from idle
