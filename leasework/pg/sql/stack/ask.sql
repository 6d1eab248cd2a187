-- Ask the node that runs a job for the stack of its handler.
-- locks: the job's row of stack, a signal row
-- index: job_pkey, stack_pkey, signal_pkey
with claimed as (
    select id, node, claim_token from leasework.job where id = %(job)s
      and case when ready then node is not null end -- hidden from job_ready
), asked as (
    insert into leasework.stack (job_id, request, node, claim_token, asked_at)
    select id, %(request)s, node, claim_token, coalesce(%(now)s::timestamptz, now()) from claimed
    on conflict (job_id) do update
    set request = excluded.request, node = excluded.node, claim_token = excluded.claim_token,
        asked_at = excluded.asked_at, answered_at = null, says = null
    returning node, claim_token
), told as (
    insert into leasework.signal (node, job_id, kind, claim_token)
    select node, %(request)s, 'stack', claim_token from asked
    returning node
)
select leasework.notify('c:' || node) from told
