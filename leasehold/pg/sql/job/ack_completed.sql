-- Write attempts that simply succeeded, each fenced by its token: the usual outcome, and one move
-- of a row to job_done. In all else as job/ack, with its answer: what was not written, and whether
-- it is ours still.
-- edge: running -> completed
-- locks: job rows by id FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey
with held as materialized (
    select l.at_row, a.result, a.ran
    from unnest((select %(ids)s::uuid[]), (select %(tokens)s::bigint[]), (select %(results)s::jsonb[]),
                (select %(ran)s::float8[]))
         as a (id, token, result, ran),
         lateral (select ctid as at_row from leasehold.job j
                  where j.id = a.id and j.claim_token = a.token and j.node = %(node)s
                  for update skip locked) l
), gone as (
    delete from leasehold.job j using held h
    where j.ctid = h.at_row
    returning j.id, j.queue, j.task_name, j.priority, j.run_at, j.created_at, j.max_attempts, j.attempt, j.crashes,
              j.timeout_seconds, j.schedule, j.tick_at, j.node, j.claim_token, j.payload, j.last_error,
              j.unique_key, j.history, h.result, h.ran
), done as (
    insert into leasehold.job_done (id, finished_at, queue, task_name, priority, run_at, created_at, started_at,
        max_attempts, attempt, crashes, timeout_seconds, state, schedule, tick_at, node, claim_token, payload,
        result, last_error)
    select g.id, m.clock, g.queue, g.task_name, g.priority, g.run_at, g.created_at,
           m.clock - make_interval(secs => g.ran), g.max_attempts, g.attempt, g.crashes, g.timeout_seconds,
           'completed', g.schedule, g.tick_at, g.node, g.claim_token, g.payload, g.result, g.last_error
    from gone g, (select coalesce(%(now)s::timestamptz, now()) as clock) m
    where g.history
), keys as (
    delete from leasehold.job_key k using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.held_until is null
)
select a.id, (select j.id from leasehold.job j -- not EXISTS, for which all may be read and hashed
              where j.id = a.id and j.claim_token = a.token and j.node = %(node)s) is not null
from unnest((select %(ids)s::uuid[]), (select %(tokens)s::bigint[])) as a (id, token)
where (select count(*) from gone) < cardinality(%(ids)s::uuid[])
  and a.id <> all (array(select id from gone))
