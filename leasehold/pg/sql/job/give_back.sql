-- Give back claims whose runs do not count: not started, or ended because their process stops. A job whose cancel was
-- requested ends here. A locked row is skipped, so that it does not hold up the rest.
-- edge: running -> available
-- edge: running -> cancelled
-- locks: job rows by id FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey
with mine as materialized (
    select l.id, l.unwanted
    from unnest((select %(claims_1)s::uuid[]), (select %(claims_2)s::bigint[])) as a (id, claim_token),
         lateral (select j.id, j.cancel_requested as unwanted from leasehold.job j
                  where j.id = a.id and j.claim_token = a.claim_token and j.node = %(node)s
                  for update skip locked) l
), back as (
    update leasehold.job j
    set node = null, claim_token = null, fresh = false, seat = nextval('leasehold.seat_seq'),
        attempt = j.attempt - 1, started_at = null, progress = null,
        progress_note = null
    where j.id = any (array(select id from mine where not unwanted))
    returning j.id, j.queue
), gone as (
    delete from leasehold.job j where j.id = any (array(select id from mine where unwanted))
    returning j.*, 'cancelled' as ended, null::timestamptz as began, null::jsonb as result,
              'its worker gave it back' as error, 1 as undone, 0 as crashed
), {{job/_finish}}, woken as (
    select leasehold.wake(array_agg(distinct queue)) from back
)
select r.id from (select id from back union all select id from gone) r, woken
