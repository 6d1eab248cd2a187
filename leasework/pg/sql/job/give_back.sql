-- Give back claims whose runs do not count: not started, or ended because their process stops. A job whose cancel was
-- requested ends here. A locked row is skipped, so that it does not hold up the rest.
-- edge: running -> available
-- edge: running -> cancelled
-- locks: job rows by id FOR UPDATE SKIP LOCKED, then unique keys
-- index: job_pkey, job_key_pkey
with freed as materialized (
    select l.id, case when l.unwanted then 'cancelled' end as over, null::timestamptz as began, null as why,
           'its worker gave it back' as error, 1 as undone, 0 as crashed
    from unnest((select %(claims_1)s::uuid[]), (select %(claims_2)s::bigint[])) as a (id, claim_token),
         lateral (select j.id, j.cancel_requested as unwanted from leasework.job j
                  where j.id = a.id and j.claim_token = a.claim_token and j.node = %(node)s
                  for update skip locked) l
), {{job/_back}}
select f.id from freed f, woken
