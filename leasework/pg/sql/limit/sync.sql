-- Write the limits and weights that the code defines. What a person set stays. missing: only those that have no row.
-- A clock that was set back would keep a bucket empty until it has caught up.
-- locks: rows of limits and weight that differ
-- index: limits_pkey, weight_pkey; a scan of limit_key
with defined as (
    insert into leasework.limits as l (name, app, concurrency, rate, burst)
    select d.name, %(app)s, d.concurrency, d.rate, d.burst
    from jsonb_to_recordset(%(limits)s::jsonb) as d (name text, concurrency integer, rate float8, burst float8)
    order by d.name
    on conflict (name) do update
    set app = excluded.app, concurrency = excluded.concurrency, rate = excluded.rate, burst = excluded.burst,
        updated_at = coalesce(%(now)s::timestamptz, now())
    where not %(missing)s and (l.concurrency, l.rate, l.burst)
          is distinct from (excluded.concurrency, excluded.rate, excluded.burst)
    returning l.name
), weighed as (
    insert into leasework.weight as w (queue, tenant, weight)
    select d.queue, leasework.lane_part(d.tenant), d.weight
    from jsonb_to_recordset(%(weights)s::jsonb) as d (queue text, tenant text, weight float8)
    order by 1, 2
    on conflict (queue, tenant) do update set weight = excluded.weight
    where not %(missing)s and w.weight is distinct from excluded.weight
    returning w.queue
), unweighed as (
    update leasework.weight w set weight = null
    where not %(missing)s and w.weight is not null and w.queue = any (%(queues)s::text[])
      and (w.queue, w.tenant) not in (select d.queue, leasework.lane_part(d.tenant)
                                      from jsonb_to_recordset(%(weights)s::jsonb) as d (queue text, tenant text))
    returning w.queue
), turned_back as (
    update leasework.limit_key set filled_at = coalesce(%(now)s::timestamptz, now()) where key in (
        select key from leasework.limit_key
        where filled_at > greatest(coalesce(%(now)s::timestamptz, now()) + interval '1 second', closed_until)
        for update skip locked)
    returning key
)
select (select count(*) from defined) + (select count(*) from weighed) + (select count(*) from unweighed)
