-- Write attempts that completed, the usual outcome, each fenced by its token: each row moves to job_done. Otherwise
-- like job/ack, with the same answer: what was not written, and whether it is still ours.
-- edge: running -> completed
-- locks: job rows by id FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey
with held as materialized (
    select l.at_row, a.result, a.ran
    from unnest((select %(ids)s::uuid[]), (select %(tokens)s::bigint[]), (select %(results)s::jsonb[]),
                (select %(ran)s::float8[]))
         as a (id, token, result, ran),
         lateral (select ctid as at_row from leasework.job j
                  where j.id = a.id and j.claim_token = a.token and j.node = %(node)s
                  for update skip locked) l
), gone as (
    delete from leasework.job j using held h
    where j.ctid = h.at_row
    returning j.*, 'completed' as ended,
              coalesce(%(now)s::timestamptz, statement_timestamp()) - make_interval(secs => h.ran) as began,
              h.result, j.last_error as error, 0 as undone, 0 as crashed
), {{job/_finish}}
select a.id, (select j.id from leasework.job j -- not EXISTS, which may read and hash all rows
              where j.id = a.id and j.claim_token = a.token and j.node = %(node)s) is not null
from unnest((select %(ids)s::uuid[]), (select %(tokens)s::bigint[])) as a (id, token)
where (select count(*) from gone) < cardinality(%(ids)s::uuid[])
  and a.id <> all (array(select id from gone))
