-- The limits, what a person set, and how many jobs run and wait of each. Both are counted up to 10,000.
-- locks: none
-- index: job_lane, job_holds_1, job_holds_2, limit_key_name
select l.name, l.app, l.concurrency, l.rate, l.burst, l.set_concurrency, l.set_rate, l.set_burst, l.paused,
       coalesce(r.n, 0), coalesce(w.n, 0),
       (select count(*) from leasework.limit_key k
        where k.name = l.name and (k.set_concurrency is not null or k.paused)),
       (select count(*) from leasework.limit_key k
        where k.name = l.name and k.closed_until > coalesce(%(now)s::timestamptz, clock_timestamp())),
       w.oldest
from leasework.limits l
left join (
    select split_part(h.key, ':', 1) as name, count(*) as n from (
        (select leasework.holds(j.lane, j.ready, 1) as key from leasework.job j
         where leasework.holds(j.lane, j.ready, 1) is not null limit 10000)
        union all
        (select leasework.holds(j.lane, j.ready, 2) from leasework.job j
         where leasework.holds(j.lane, j.ready, 2) is not null limit 10000)) h
    group by 1) r using (name)
left join (
    select split_part(k, ':', 1) as name, count(*) as n, min(j.run_at) as oldest
    from (select lane, run_at from leasework.job where held_because = 'limit' limit 10000) j,
         unnest(leasework.lane_keys(j.lane)) k
    group by 1) w using (name)
order by l.name
