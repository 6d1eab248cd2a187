-- Write attempts that simply succeeded, each fenced by its token: the usual outcome, as one row's
-- move to job_done. Rows locked by somebody are passed over, so that they do not stop the others.
-- What was locked is found by its place: a row that was changed meanwhile (a cancel, progress) has
-- moved, is left, and is answered as locked; it is written at the next try.
-- The answer: (id, true) for what was written, (id, false) for what is ours still; an id that is
-- not in it was refused: the claim was lost.
-- LATERAL, so that each row is found by its key, and (select ...) around the ids, which hides their
-- number from the planner: else it may scan the table for the node's rows. The ids come sorted.
-- edge: running -> completed
-- locks: job rows by id FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey
with held as materialized (
    select l.at_row, a.result, a.ran
    from unnest((select %(ids)s::uuid[]), (select %(tokens)s::bigint[]), (select %(results)s::jsonb[]),
                (select %(ran)s::float8[]))
         as a (id, claim_token, result, ran),
         lateral (select ctid as at_row from leasehold.job j
                  where j.id = a.id and j.claim_token = a.claim_token and j.node = %(node)s
                  for update skip locked) l
), gone as (
    delete from leasehold.job j using held h
    where j.ctid = h.at_row
    returning j.*, h.result, h.ran
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
select id, true from gone
union all
select a.id, false
from unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) as a (id, claim_token),
     lateral (select 1 from leasehold.job j
              where j.id = a.id and j.claim_token = a.claim_token and j.node = %(node)s offset 0) l
where (select count(*) from gone) < cardinality(%(ids)s::uuid[])
  and a.id <> all (array(select id from gone))
