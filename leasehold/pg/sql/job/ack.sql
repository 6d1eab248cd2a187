-- Write the outcomes of attempts, each fenced by its token. Finished jobs move to job_done;
-- others wait for their next attempt, unless somebody asked to cancel them meanwhile.
-- The answer: (id, true) for what was written, (id, false) for a row that somebody holds locked (it
-- must not stop the others); an id that is not in it was refused: the claim was lost.
-- By id and not by ctid: a row that was changed meanwhile (a cancel, progress) has a version that
-- this statement's snapshot would not find by its place.
-- edge: running -> completed
-- edge: running -> cancelled
-- edge: running -> discarded
-- edge: running -> retryable
-- edge: running -> scheduled
-- locks: job rows by id FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey
with a as materialized (
    select * from unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(states)s::text[], %(run_in)s::float8[],
                         %(errors)s::text[], %(results)s::jsonb[], %(ran)s::float8[], %(counts)s::bool[],
                         %(held)s::text[])
         as t (id, claim_token, state, run_in, error, result, ran, counts, held_because)
), held as materialized (
    select a.id,
           case when a.state in ('completed', 'cancelled', 'discarded') then a.state
                when j.cancel_requested then 'cancelled' end as over,
           j.attempt, j.node
    from a join leasehold.job j on j.id = a.id and j.claim_token = a.claim_token and j.node = %(node)s
    order by j.id
    for update of j skip locked
), gone as (
    delete from leasehold.job j using held h
    where j.id = h.id and h.over is not null
    returning j.*
), done as (
    insert into leasehold.job_done (id, finished_at, queue, task_name, priority, run_at, created_at, started_at,
        max_attempts, attempt, crashes, timeout_seconds, state, schedule, tick_at, node, claim_token, payload,
        result, last_error)
    select g.id, m.clock, g.queue, g.task_name, g.priority, g.run_at, g.created_at,
           m.clock - make_interval(secs => a.ran), g.max_attempts, g.attempt, g.crashes, g.timeout_seconds,
           h.over, g.schedule, g.tick_at, g.node, g.claim_token, g.payload, a.result,
           coalesce(a.error, g.last_error)
    from gone g join held h on h.id = g.id join a on a.id = g.id,
         (select coalesce(%(now)s::timestamptz, now()) as clock) m
    where g.history or h.over <> 'completed'
), back as (
    update leasehold.job j
    set ready = false, node = null, started_at = null, progress = null, progress_note = null,
        held_because = coalesce(a.held_because, a.state), last_error = coalesce(a.error, j.last_error),
        attempt = j.attempt - case when a.counts then 0 else 1 end,
        run_at = coalesce(%(now)s::timestamptz, now()) + make_interval(secs => a.run_in)
    from held h join a on a.id = h.id
    where j.id = h.id and h.over is null
), keys as (
    delete from leasehold.job_key k using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.held_until is null
), tries as (
    insert into leasehold.attempt (job_id, claim_token, attempt, node, started_at, ended_at, outcome, error)
    select a.id, a.claim_token, h.attempt, h.node, m.clock - make_interval(secs => a.ran), m.clock,
           coalesce(h.over, a.held_because, a.state), a.error
    from a join held h on h.id = a.id, (select coalesce(%(now)s::timestamptz, now()) as clock) m
    where a.state <> 'completed'
    on conflict do nothing
)
select id, true from held
union all
select a.id, false
from a join leasehold.job j on j.id = a.id and j.claim_token = a.claim_token and j.node = %(node)s
where a.id not in (select id from held)
