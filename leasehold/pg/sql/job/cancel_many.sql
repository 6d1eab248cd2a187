-- Cancel jobs: waiting ones end now, running ones are flagged and their nodes are told. Rows that
-- somebody holds locked are left. The answer: those that were cancelled or flagged.
-- edge: available -> cancelled
-- edge: scheduled -> cancelled
-- edge: retryable -> cancelled
-- locks: job rows FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey
with target as materialized (
    select id, node from leasehold.job where id = any (%(jobs)s::uuid[]) order by id for update skip locked
), flagged as (
    update leasehold.job j set cancel_requested = true
    where j.id = any (array(select id from target where node is not null)) and j.node is not null
    returning j.id, j.node, j.claim_token
), told as (
    insert into leasehold.signal (node, job_id, kind, claim_token)
    select node, id, 'cancel', claim_token from flagged
    on conflict (node, job_id, kind) do update set claim_token = excluded.claim_token
), rung as (
    select pg_notify('leasehold', 'c:' || node) from (select distinct node from flagged) n
), gone as (
    delete from leasehold.job j
    where j.id = any (array(select id from target where node is null)) and j.node is null
    returning j.*
), done as (
    insert into leasehold.job_done (id, finished_at, queue, task_name, priority, run_at, created_at, max_attempts,
        attempt, crashes, timeout_seconds, state, schedule, tick_at, payload, last_error)
    select id, coalesce(%(now)s::timestamptz, now()), queue, task_name, priority, run_at, created_at, max_attempts,
           attempt, crashes, timeout_seconds, 'cancelled', schedule, tick_at, payload, %(reason)s
    from gone
), keys as (
    delete from leasehold.job_key k using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.held_until is null
)
select id, (select count(*) from rung) from flagged union all select id, 0 from gone
