-- Give jobs up: waiting ones end now, quarantined ones are not to be decided on any more. Running
-- ones, and rows that somebody holds locked, are left. The answer: those that were given up.
-- edge: available -> discarded
-- edge: scheduled -> discarded
-- edge: retryable -> discarded
-- edge: quarantined -> discarded
-- locks: job rows FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_done_pkey, job_key_pkey, job_done_bad
with target as materialized (
    select id from leasehold.job where id = any (%(jobs)s::uuid[]) and node is null order by id for update skip locked
), gone as (
    delete from leasehold.job j
    where j.id = any (array(select id from target)) and j.node is null
    returning j.*
), done as (
    insert into leasehold.job_done (id, finished_at, queue, task_name, priority, run_at, created_at, max_attempts,
        attempt, crashes, timeout_seconds, state, schedule, tick_at, payload, last_error)
    select id, coalesce(%(now)s::timestamptz, now()), queue, task_name, priority, run_at, created_at, max_attempts,
           attempt, crashes, timeout_seconds, 'discarded', schedule, tick_at, payload, %(reason)s
    from gone
), keys as (
    delete from leasehold.job_key k using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.held_until is null
), given_up as (
    update leasehold.job_done set state = 'discarded'
    where id = any (%(jobs)s::uuid[]) and state = 'quarantined'
    returning id
)
select id from gone union all select id from given_up
