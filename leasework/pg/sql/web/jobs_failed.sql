-- Scan the newest failures with one fingerprint, at most "scan", for jobs that match and of which it is the last failure:
-- ids and when they failed.
-- locks: none
-- index: attempt_error, attempt_pkey, step_pkey, job_pkey, job_done_pkey
with looked as materialized (
    select a.ended_at, a.job_id, a.claim_token from leasework.attempt a
    where a.fingerprint = %(fingerprint)s and (a.ended_at, a.job_id) < (%(before_at)s::timestamptz, %(before)s::uuid)
      and a.ended_at between coalesce(%(since)s::timestamptz, '-infinity') and coalesce(%(until)s::timestamptz, 'infinity')
    order by a.ended_at desc, a.job_id desc limit %(scan)s
), found as (
    select l.ended_at, l.job_id from looked l
    where l.job_id between %(first)s and %(last)s
      and l.claim_token = (select a.claim_token from leasework.attempt a
                           where a.job_id = l.job_id and a.fingerprint is not null order by a.claim_token desc limit 1)
      and coalesce((select {{job/_state}} = coalesce(%(state)s::text, {{job/_state}})
                           and {{job/_state}} <> all (%(not_states)s::text[]) and {{job/_matches}}
                    from (select *, l.ended_at as changed from leasework.job) j where j.id = l.job_id and %(waiting)s),
                   (select (%(state)s::text is null or %(state)s = d.state) and d.state <> all (%(not_states)s::text[])
                           and {{job/_matches}}
                    from (select *, l.ended_at as changed from leasework.job_done) d
                    where d.id = l.job_id and d.finished_at >= l.ended_at and %(finished)s limit 1))
    order by l.ended_at desc, l.job_id desc limit %(limit)s
), furthest as (
    select ended_at, job_id from looked order by ended_at, job_id limit 1
)
select (select count(*) from looked), (select ended_at from furthest), (select job_id from furthest),
       array(select job_id from found order by ended_at desc, job_id desc),
       array(select ended_at from found order by ended_at desc, job_id desc)
