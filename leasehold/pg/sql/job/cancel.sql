-- Cancel a job: a waiting one ends now, a running one is flagged and its node is notified. A locked row is skipped, and
-- the caller tries again.
-- edge: available -> cancelled
-- edge: scheduled -> cancelled
-- edge: retryable -> cancelled
-- locks: job row FOR UPDATE SKIP LOCKED, then its unique key
-- index: job_pkey, job_key_pkey, job_done_pkey
with target as materialized (
    select ctid as at_row, node from leasehold.job where id = %(job)s for update skip locked
), flagged as (
    update leasehold.job j set cancel_requested = true, last_error = %(reason)s
    where j.ctid = any (array(select at_row from target where node is not null))
    returning j.id, j.node, j.claim_token
), told as (
    insert into leasehold.signal (node, job_id, kind, claim_token)
    select node, id, 'cancel', claim_token from flagged
    on conflict (node, job_id, kind) do update set claim_token = excluded.claim_token
    returning leasehold.notify('c:' || node)
), gone as (
    delete from leasehold.job j
    where j.ctid = any (array(select at_row from target where node is null))
    returning j.*, 'cancelled' as ended, null::timestamptz as began, null::jsonb as result,
              %(reason)s::text as error, 0 as undone, 0 as crashed
), {{job/_finish}}
select case when exists (select 1 from flagged) then 'running'
            when exists (select 1 from gone) then 'waiting'
            when exists (select 1 from leasehold.job_done where id = %(job)s) then 'finished'
            when exists (select 1 from leasehold.job where id = %(job)s) then 'locked' end,
       (select count(*) from told)
