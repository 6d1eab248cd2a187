-- Open the keys whose throttled time is over by the clock of a test, with full buckets. Return the seconds until the next
-- one opens, and the queues with jobs that wait for none of those.
-- locks: the rows of the keys
-- index: job_lane (all of it), limit_key_pkey; scans of limit_key
with clock as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as time
), opened as (
    update leasework.limit_key k set closed_until = null, filled_at = to_timestamp(0)
    where k.closed_until <= %(now)s::timestamptz
)
select (select extract(epoch from min(k.closed_until) - clock.time)::float8 from leasework.limit_key k
        where k.closed_until > clock.time),
       array(select distinct j.queue from leasework.job j
             where j.held_because = 'limit' and not exists (
                 select from unnest(leasework.lane_keys(j.lane)) u (key) join leasework.limit_key k on k.key = u.key
                 where k.closed_until > clock.time))
from clock
