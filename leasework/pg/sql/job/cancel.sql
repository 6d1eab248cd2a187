-- Cancel jobs: waiting ones end now, running ones are flagged and their nodes are notified. Locked rows are skipped. The
-- answer says of each known job where it was: waiting, running, finished, or locked.
-- edge: available -> cancelled
-- edge: scheduled -> cancelled
-- edge: retryable -> cancelled
-- locks: job rows by id FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey, job_done_pkey
with target as materialized (
    select id, node from leasework.job where id = any (%(jobs)s::uuid[]) order by id for update skip locked
), flagged as (
    update leasework.job j set cancel_requested = true, last_error = %(reason)s
    where j.id = any (array(select id from target where node is not null)) and j.node is not null
    returning j.id, j.node, j.claim_token
), told as (
    insert into leasework.signal (node, job_id, kind, claim_token)
    select node, id, 'cancel', claim_token from flagged
    on conflict (node, job_id, kind) do update set claim_token = excluded.claim_token
), rung as (
    select count(leasework.notify('c:' || node)) from (select distinct node from flagged) n
), gone as (
    delete from leasework.job j
    where j.id = any (array(select id from target where node is null)) and j.node is null
    returning j.*, 'cancelled' as ended, null::timestamptz as began, null::jsonb as result,
              %(reason)s::text as error, 0 as undone, 0 as crashed
), {{job/_finish}}, changed as (
    select id, 'running' as place from flagged union all select id, 'waiting' from gone
)
select id, place from changed, rung
union all
{{job/_unchanged}}
