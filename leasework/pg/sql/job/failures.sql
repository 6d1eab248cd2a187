-- The failed attempts of the last "seconds" by fingerprint, the group with the most first. At most about "most" attempts
-- are counted, and none of a group beyond the same share: where small groups leave room, it grows, at most twice. The
-- jobs are counted among a group's newest "distinct" attempts. Of the newest attempts, at most "looked" of all groups, it
-- is found out which are last failures of jobs that wait to be retried or failed for good: a job ends at the moment at
-- which its last attempt does. Knows "kinds" fingerprints.
-- locks: none
-- index: attempt_error (in order), attempt_pkey, job_pkey, job_done_pkey
with recursive clock as materialized (
    select c.at - make_interval(secs => %(seconds)s::float8) as since
    from (select coalesce(%(now)s::timestamptz, now()) as at) c
), kind (fingerprint) as (
    (select fingerprint from leasework.attempt where fingerprint is not null order by fingerprint limit 1)
    union all
    select (select a.fingerprint from leasework.attempt a where a.fingerprint > k.fingerprint order by 1 limit 1)
    from kind k where k.fingerprint is not null
), lately as materialized (
    select k.fingerprint, c.since, n.job_id, n.ended_at, n.error
    from (select fingerprint from kind limit %(kinds)s) k, clock c
    cross join lateral (select a.job_id, a.ended_at, a.error from leasework.attempt a
                        where a.fingerprint = k.fingerprint and a.ended_at > c.since order by a.ended_at desc limit 1) n
), share (n, round) as (
    select %(most)s::bigint / greatest(count(*), 1), 1 from lately
    union all
    select s.n + x.rest / x.cut, s.round + 1
    from share s cross join lateral (
        select %(most)s - sum(b.n)::bigint as rest, count(*) filter (where b.n >= s.n) as cut
        from lately l cross join lateral (
            select count(*) as n from (select 1 from leasework.attempt a
                where a.fingerprint = l.fingerprint and a.ended_at > l.since limit s.n) y) b) x
    where s.round < 3 and x.rest >= x.cut and x.cut > 0
), counted as materialized (
    select l.*, s.n as share, b.*
    from lately l, (select max(n) as n from share) s cross join lateral (
        with a as materialized (
            select a.ended_at, a.job_id from leasework.attempt a
            where a.fingerprint = l.fingerprint and a.ended_at > l.since order by a.ended_at desc limit s.n
        ), part as (
            select width_bucket(date_part('epoch', a.ended_at - l.since), 0, %(seconds)s::float8, %(bars)s) as bar, count(*) as n
            from a group by 1)
        select sum(n)::bigint as attempts, (select count(distinct y.job_id) from (select a.job_id from a limit %(distinct)s) y) as jobs,
               array(select coalesce((select p.n from part p where p.bar = g), 0)
                     from generate_series(1, %(bars)s) g) as trend from part) b
    order by b.attempts desc, l.ended_at desc limit %(limit)s
)
select c.fingerprint, o.tasks, c.attempts, c.attempts >= c.share, c.jobs, c.attempts >= least(c.share, %(distinct)s + 1), o.open, o.looked, c.trend,
       (select a.ended_at from leasework.attempt a where a.fingerprint = c.fingerprint order by a.ended_at limit 1),
       c.ended_at, c.job_id, c.error
from counted c
cross join lateral (
    select count(*) as looked, count(*) filter (where x.open) as open,
           coalesce(array_agg(distinct x.task) filter (where x.task is not null), '{}') as tasks
    from (select coalesce(j.task_name, d.task_name) as task,
                 j.held_because = 'retryable' and j.claim_token = a.claim_token
                 or d.state in ('discarded', 'quarantined') and d.finished_at = a.ended_at as open
          from (select a.job_id, a.claim_token, a.ended_at from leasework.attempt a
                where a.fingerprint = c.fingerprint and a.ended_at > c.since
                order by a.ended_at desc limit (select %(looked)s::bigint / greatest(count(*), 1) from counted)) a
          left join leasework.job j on j.id = a.job_id
          left join lateral (select d.state, d.task_name, d.finished_at from leasework.job_done d
                             where d.id = a.job_id and d.finished_at >= a.ended_at limit 1) d on true) x) o
order by c.attempts desc, c.ended_at desc
