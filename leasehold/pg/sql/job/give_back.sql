-- Jobs that were claimed and not started go back at once; the run does not count.
-- edge: running -> available
-- locks: job rows by id
-- index: job_pkey
with back as (
    update leasehold.job j set node = null, claim_token = null, attempt = j.attempt - 1, started_at = null
    from unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) as a (id, claim_token)
    where j.id = a.id and j.claim_token = a.claim_token and j.node = %(node)s
    returning j.id, j.queue
), woken as (
    select leasehold.wake(array_agg(distinct queue), true) from back
)
select id from back, woken
