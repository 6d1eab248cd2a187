-- What a job that waits in a lane waits for: each of its keys, and how many jobs of its lane come before it.
-- locks: none
-- index: job_pkey, job_lane, job_holds_1, job_holds_2, limits_pkey, limit_key_pkey
select leasework.lane_text(k.key), d.name is not null, coalesce(x.set_concurrency, d.set_concurrency, d.concurrency),
       (select count(*) from leasework.job o where leasework.holds(o.lane, o.ready, 1) = k.key)
       + (select count(*) from leasework.job o where leasework.holds(o.lane, o.ready, 2) = k.key),
       coalesce(d.set_rate, d.rate),
       (coalesce(j.costs[k.o], 1) - r.tokens) / nullif(coalesce(d.set_rate, d.rate), 0),
       coalesce(x.paused, false) or coalesce(d.paused, false),
       extract(epoch from x.closed_until - coalesce(%(now)s::timestamptz, now()))::float8,
       (select count(*) from (
            select 1 from leasework.job o
            where o.held_because = 'limit' and o.queue = j.queue and o.lane = j.lane
              and (leasework.level(o.priority, o.fresh), o.seat) < (leasework.level(j.priority, j.fresh), j.seat)
            limit 1000) b),
       leasework.lane_text(split_part(j.lane, '|', 1))
from leasework.job j
cross join lateral unnest(coalesce(nullif(leasework.lane_keys(j.lane), '{}'), '{""}')) with ordinality k (key, o)
left join leasework.limits d on d.name = split_part(k.key, ':', 1)
left join leasework.limit_key x on x.key = k.key
left join lateral leasework.rooms(array[k.key], coalesce(%(now)s::timestamptz, now())) r on true
where j.id = %(job)s and case j.held_because when 'limit' then true end -- hidden from job_lane
order by k.o
