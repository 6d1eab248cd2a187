-- The busiest keys of a limit, and those that a person changed.
-- locks: none
-- index: limit_key_name, job_holds_1, job_holds_2, job_lane (all of it)
select leasework.lane_text(regexp_replace(k.key, '^[^:]*:?', '')), k.set_concurrency, k.paused, k.closed_until,
       (select count(*) from leasework.job j where leasework.holds(j.lane, j.ready, 1) = k.key)
       + (select count(*) from leasework.job j where leasework.holds(j.lane, j.ready, 2) = k.key) as running,
       coalesce(w.n, 0), w.oldest, k.tokens
from leasework.limit_key k
left join (
    select key, count(*) as n, min(j.run_at) as oldest
    from (select lane, run_at from leasework.job where held_because = 'limit' limit 10000) j,
         unnest(leasework.lane_keys(j.lane)) key
    group by 1) w using (key)
where k.name = %(name)s
order by k.set_concurrency is null and not k.paused, coalesce(w.n, 0) desc, k.key
limit %(limit)s
