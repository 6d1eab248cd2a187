-- Free the jobs of nodes that are gone. All that a node held at its first crash is suspect and is
-- marked when it starts from then on; a suspect is blamed only if it had started, and
-- quarantined when it was running at max_crashes crashes. Rows locked by a user who completes
-- the job in a transaction are skipped.
-- edge: running -> available
-- edge: running -> quarantined
-- edge: running -> cancelled
-- token: none, because these nodes' rows are gone: their claim_token can write nothing any more
--        once node is null, and no claim of theirs can be in flight
-- locks: job rows FOR UPDATE SKIP LOCKED
-- index: job_ready (all of it): what runs is ready, and what waits is not; job_pkey, job_key_pkey, node_pkey
with lost as materialized (
    select j.id, j.node, j.claim_token, j.attempt, j.queue, j.cancel_requested,
           coalesce(j.started_at, j.claimed_at) as started_at,
           j.crashes = 0 or j.started_at is not null as blamed,
           j.crashes + 1 >= %(max_crashes)s and j.started_at is not null as poison
    from leasehold.job j
    where j.ready and j.node = any (%(nodes)s::uuid[])
      and not exists (select 1 from leasehold.node n where n.id = j.node)
    limit %(limit)s
    for update of j skip locked
), back as (
    update leasehold.job j
    set node = null, claim_token = null, started_at = null, progress = null, progress_note = null,
        crashes = j.crashes + case when l.blamed then 1 else 0 end,
        attempt = j.attempt - case when l.blamed then 0 else 1 end,
        last_error = case when l.blamed then 'its worker died' else j.last_error end
    from lost l
    where j.id = l.id and not l.poison and not l.cancel_requested
    returning j.id, j.queue
), gone as (
    delete from leasehold.job j using lost l
    where j.id = l.id and (l.poison or l.cancel_requested)
    returning j.*
), done as (
    insert into leasehold.job_done (id, finished_at, queue, task_name, priority, run_at, created_at, started_at,
        max_attempts, attempt, crashes, timeout_seconds, state, schedule, tick_at, node, claim_token, payload,
        last_error)
    select g.id, coalesce(%(now)s::timestamptz, now()), g.queue, g.task_name, g.priority, g.run_at, g.created_at,
           l.started_at, g.max_attempts, g.attempt, g.crashes + 1, g.timeout_seconds,
           case when l.poison then 'quarantined' else 'cancelled' end,
           g.schedule, g.tick_at, g.node, g.claim_token, g.payload,
           case when l.poison then format('its worker died %%s times while it ran', g.crashes + 1)
                else 'cancelled; its worker died' end
    from gone g join lost l on l.id = g.id
), keys as (
    delete from leasehold.job_key k using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.held_until is null
), tries as (
    insert into leasehold.attempt (job_id, claim_token, attempt, node, started_at, ended_at, outcome, error)
    select l.id, l.claim_token, l.attempt, l.node, l.started_at, coalesce(%(now)s::timestamptz, now()),
           'crashed', 'its worker died'
    from lost l where l.blamed
    on conflict do nothing
), woken as (
    select leasehold.wake(array_agg(distinct queue), true) from back
)
select l.id, l.node, l.blamed, l.poison from lost l, woken
