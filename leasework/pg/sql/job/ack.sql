-- Write the outcomes of attempts, each fenced by its token. Finished jobs move to job_done. Others wait for their next
-- attempt, unless a cancel was requested in the meantime. Rows locked by others are skipped, so that they do not hold
-- up the rest. The rows locked here are found by ctid: one that changed in the meantime (by a cancel or progress) has
-- moved, is skipped, and is reported as still ours. The next try writes it.
-- The answer has what was not written, and whether it is still ours (false: the claim was lost).
-- What a suspended job waits for may have come already. Whoever brings it changes the job's row, so a row whose wait
-- ended after this statement's snapshot was taken has moved.
-- LATERAL finds each row by its key, and (select ...) around the arrays hides their length from the planner. Otherwise
-- it may scan the table for the node's rows, or plan each short batch anew, which costs more than writing it. The ids
-- are sorted.
-- edge: running -> completed
-- edge: running -> cancelled
-- edge: running -> discarded
-- edge: running -> retryable
-- edge: running -> scheduled
-- locks: job rows by id FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey
with held as materialized (
    select l.at_row, l.attempt, l.node, a.*,
           case when a.state in ('completed', 'cancelled', 'discarded') then a.state
                when l.cancel_requested then 'cancelled' end as over
    from unnest((select %(ids)s::uuid[]), (select %(tokens)s::bigint[]), (select %(states)s::text[]),
                (select %(run_in)s::float8[]), (select %(errors)s::text[]), (select %(results)s::jsonb[]),
                (select %(ran)s::float8[]), (select %(counts)s::bool[]), (select %(held)s::text[]),
                (select %(tracebacks)s::text[]), (select %(waits)s::text[]), (select %(fingerprints)s::text[]),
                (select %(logs)s::text[]))
         as a (id, token, state, run_in, error, result, ran, counts, held_because, traceback, waits, fingerprint, log),
         lateral (select ctid as at_row, attempt, node, cancel_requested from leasework.job j
                  where j.id = a.id and j.claim_token = a.token and j.node = %(node)s
                  for update skip locked) l
), gone as (
    delete from leasework.job j using held h
    where j.ctid = h.at_row and h.over is not null
    returning j.*, h.over as ended,
              coalesce(%(now)s::timestamptz, statement_timestamp()) - make_interval(secs => h.ran) as began, h.result,
              coalesce(h.error, j.last_error) as error, 0 as undone, 0 as crashed, h.ran, h.error as said, h.traceback,
              h.state as outcome, h.fingerprint, h.log
), {{job/_finish}}, back as (
    update leasework.job j
    set ready = false, node = null, started_at = null, progress = null, progress_note = null,
        held_because = coalesce(h.held_because, h.state), last_error = coalesce(h.error, j.last_error),
        attempt = j.attempt - case when h.counts then 0 else 1 end,
        run_at = coalesce(%(now)s::timestamptz, statement_timestamp())
                 + make_interval(secs => case when leasework.has_come(h.id, h.waits) then 0 else h.run_in end)
    from held h
    where j.ctid = h.at_row and h.over is null
    returning j.id, h.token, h.attempt, h.node, h.ran, coalesce(h.held_because, h.state) as outcome, h.error, h.traceback,
              h.fingerprint, h.log
), tries as (
    insert into leasework.attempt (job_id, claim_token, attempt, node, started_at, ended_at, outcome, error, traceback,
                                   fingerprint, log)
    select t.id, t.token, t.attempt, t.node, m.clock - make_interval(secs => t.ran), m.clock, t.outcome, t.error,
           t.traceback, t.fingerprint, t.log
    from (select id, claim_token as token, attempt, node, ran, ended as outcome, said as error, traceback, fingerprint, log
          from gone
          where outcome <> 'completed' or log is not null
          union all select * from back
          where outcome not in ('unknown_version', 'sleep', 'event', 'gather')) t, -- it never began, or is suspended
         (select coalesce(%(now)s::timestamptz, statement_timestamp()) as clock) m
    on conflict do nothing
)
select a.id, (select j.id from leasework.job j -- not EXISTS, which may read and hash all rows
              where j.id = a.id and j.claim_token = a.token and j.node = %(node)s) is not null
from unnest((select %(ids)s::uuid[]), (select %(tokens)s::bigint[])) as a (id, token)
where (select count(*) from gone) + (select count(*) from back) < cardinality(%(ids)s::uuid[])
  and a.id <> all (array(select id from gone union all select id from back))
