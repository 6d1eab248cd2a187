-- Discard jobs: waiting ones end now, quarantined ones need no decision any more. Running ones and locked rows are
-- skipped. The answer says of each known job where it was: waiting, quarantined, running, finished, or locked.
-- edge: available -> discarded
-- edge: scheduled -> discarded
-- edge: retryable -> discarded
-- edge: quarantined -> discarded
-- locks: job rows FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_done_pkey, job_key_pkey, job_done_bad
with target as materialized (
    select id from leasework.job where id = any (%(jobs)s::uuid[]) and node is null order by id for update skip locked
), gone as (
    delete from leasework.job j
    where j.id = any (array(select id from target)) and j.node is null
    returning j.*, 'discarded' as ended, null::timestamptz as began, null::jsonb as result,
              %(reason)s::text as error, 0 as undone, 0 as crashed
), {{job/_finish}}, given_up as (
    update leasework.job_done
    set state = 'discarded', last_error = concat_ws('; ', last_error, nullif(%(reason)s::text, ''))
    where id = any (%(jobs)s::uuid[]) and state = 'quarantined'
    returning id
), changed as (
    select id, 'waiting' as place from gone union all select id, 'quarantined' from given_up
    union all
    select id, 'running' from leasework.job where id = any (%(jobs)s::uuid[]) and node is not null
)
select id, place from changed
union all
{{job/_unchanged}}
