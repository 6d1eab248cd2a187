-- Record steps under their claims, each of which is live until this commits. The answer has those that are recorded; a
-- repetition finds its own.
-- locks: job rows FOR KEY SHARE
-- index: job_pkey, step_pkey
with mine as materialized (
    select a.* from unnest((select %(jobs)s::uuid[]), (select %(tokens)s::bigint[]), (select %(names)s::text[]),
                           (select %(results)s::jsonb[]), (select %(seconds)s::float8[]))
                    as a (job, token, name, result, seconds),
         lateral (select 1 from leasework.job j where j.id = a.job and j.claim_token = a.token and j.node = %(node)s
                  for key share) l
)
insert into leasework.step as s (job, name, kind, token, result, seconds, at)
select job, name, 'step', token, result, seconds, coalesce(%(now)s::timestamptz, clock_timestamp()) from mine
on conflict (job, name) do update set name = excluded.name where s.token = excluded.token
returning job, name
