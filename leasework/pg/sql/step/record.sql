-- Record steps under claims that are live until this commits. Answers the recorded ones; a repetition finds its own.
-- locks: job rows FOR KEY SHARE
-- index: job_pkey, step_pkey
with mine as materialized (
    select a.* from unnest((select %(steps_job)s::uuid[]), (select %(steps_token)s::bigint[]),
                           (select %(steps_name)s::text[]), (select %(steps_result)s::jsonb[]),
                           (select %(steps_seconds)s::float8[]))
                    as a (job, token, name, result, seconds),
         lateral (select 1 from leasework.job j where j.id = a.job and j.claim_token = a.token and j.node = %(node)s
                  for key share) l
)
insert into leasework.step as s (job, name, kind, token, result, seconds, at)
select job, name, 'step', token, result, seconds, coalesce(%(now)s::timestamptz, clock_timestamp()) from mine
on conflict (job, name) do update set name = excluded.name where s.token = excluded.token
returning job, name
