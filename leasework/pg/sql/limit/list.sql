-- The limits, also those that jobs name and no code defines; what a person set; and how many jobs run and wait of each.
-- Both are counted up to 10,000.
-- locks: none
-- index: limits_pkey (all of it), job_lane (all of it), job_holds_1 (all of it), job_holds_2 (all of it), limit_key_set (all of it); a scan of limits and limit_key
with running as (
    select split_part(h.key, ':', 1) as name, count(*) as n from (
        (select leasework.holds(j.lane, j.ready, 1) as key from leasework.job j
         where leasework.holds(j.lane, j.ready, 1) is not null limit 10000)
        union all
        (select leasework.holds(j.lane, j.ready, 2) from leasework.job j
         where leasework.holds(j.lane, j.ready, 2) is not null limit 10000)) h
    group by 1
), waiting as (
    select split_part(k, ':', 1) as name, count(*) as n, min(j.run_at) as oldest
    from (select lane, run_at from leasework.job where held_because = 'limit' limit 10000) j,
         unnest(leasework.lane_keys(j.lane)) k
    group by 1
), changed as (
    select k.name, count(*) filter (where k.set_concurrency is not null or k.paused) as n, min(k.set_at) as since,
           count(*) filter (where k.closed_until > coalesce(%(now)s::timestamptz, clock_timestamp())) as closed
    from leasework.limit_key k
    where k.set_at is not null or k.closed_until > coalesce(%(now)s::timestamptz, clock_timestamp())
    group by 1
)
select n.name, l.name is not null, l.app, l.concurrency, l.rate, l.burst, l.set_concurrency, l.set_rate, l.set_burst,
       coalesce(l.paused, false), coalesce(r.n, 0), coalesce(w.n, 0), coalesce(c.n, 0), coalesce(c.closed, 0),
       extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - w.oldest)::float8,
       extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - least(l.set_at, c.since))::float8
from (select name from leasework.limits union select name from waiting) n
left join leasework.limits l using (name)
left join running r using (name)
left join waiting w using (name)
left join changed c using (name)
order by n.name
