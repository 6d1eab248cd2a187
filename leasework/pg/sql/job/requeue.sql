-- Take a job from a live node because it ran longer than its requeue_after, or because a person took it away. The run
-- counts like any other: without further attempts the job is discarded. If a cancel was requested, the job ends. A row
-- locked by the handler's own transaction is skipped. Answers the job's state; running: locked; null: the claim was lost.
-- A job whose outcome was written may wait with the same token but no node. It is not taken.
-- edge: running -> available
-- edge: running -> discarded
-- edge: running -> cancelled
-- locks: job row FOR UPDATE SKIP LOCKED, then its unique key
-- index: job_pkey, job_key_pkey
with mine as materialized (
    select id, claim_token, attempt, node, coalesce(started_at, claimed_at) as started_at,
           case when cancel_requested then 'cancelled'
                when attempt - crashes >= max_attempts then 'discarded' end as over,
           coalesce('ran longer than its requeue_after of ' || requeue_seconds || ' s', 'was taken away') as why
    from leasework.job where id = %(job)s and claim_token = %(token)s and node is not null
    for update skip locked
), tries as (
    insert into leasework.attempt (job_id, claim_token, attempt, node, started_at, ended_at, outcome, error,
                                   fingerprint)
    select id, claim_token, attempt, node, started_at, coalesce(%(now)s::timestamptz, statement_timestamp()),
           coalesce(over, 'requeued'), why,
           case when why = 'was taken away' then '74bb49203ca0' else '95a35e427b4f' end -- as model/fingerprint.py has it
    from mine
    on conflict do nothing
), freed as (
    select id, over, started_at as began, why, case over when 'cancelled' then 'it ' || why else why end as error,
           0 as undone, 0 as crashed
    from mine
), {{job/_back}}
select case when exists (select 1 from back) then 'available'
            when exists (select 1 from gone) then (select ended from gone)
            when exists (select 1 from leasework.job
                         where id = %(job)s and claim_token = %(token)s and node is not null) then 'running' end,
       (select count(*) from woken)
