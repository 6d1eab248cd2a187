-- Change a limit, or one of its keys, until it is reset. Null: as it is. reset: what the code says, of all its keys too. Null as the answer: no
-- such limit.
-- locks: the row of the limit or of the key
-- index: limits_pkey, limit_key_pkey, limit_key_set, limit_key_name; a scan of node
with limited as (
    update leasework.limits l
    set set_concurrency = case when %(reset)s then null else coalesce(%(concurrency)s::integer, l.set_concurrency) end,
        set_rate = case when %(reset)s then null else coalesce(%(rate)s::float8, l.set_rate) end,
        set_burst = case when %(reset)s then null else coalesce(%(burst)s::float8, l.set_burst) end,
        paused = case when %(reset)s then false else coalesce(%(paused)s::boolean, l.paused) end,
        set_at = case when not %(reset)s and (
            coalesce(%(paused)s::boolean, l.paused)
            or num_nonnulls(%(concurrency)s::integer, l.set_concurrency, %(rate)s::float8, l.set_rate, l.set_burst) > 0)
            then coalesce(%(now)s::timestamptz, now()) end
    where l.name = %(name)s and %(key)s::text is null
    returning l.name
), keyed as (
    insert into leasework.limit_key as k (key, name, set_concurrency, paused, set_at)
    select l.name || ':' || leasework.lane_part(%(key)s::text), l.name, %(concurrency)s::integer,
           coalesce(%(paused)s::boolean, false),
           case when %(concurrency)s::integer is not null or %(paused)s::boolean then coalesce(%(now)s::timestamptz, now()) end
    from leasework.limits l where l.name = %(name)s and %(key)s::text is not null
    on conflict (key) do update
    set set_concurrency = case when %(reset)s then null
                               else coalesce(excluded.set_concurrency, k.set_concurrency) end,
        paused = case when %(reset)s then false else coalesce(%(paused)s::boolean, k.paused) end,
        set_at = case when not %(reset)s and (coalesce(%(paused)s::boolean, k.paused)
                                              or coalesce(excluded.set_concurrency, k.set_concurrency) is not null)
                      then coalesce(%(now)s::timestamptz, now()) end
    returning k.name
), reset as (
    update leasework.limit_key set set_concurrency = null, paused = false, set_at = null
    where %(reset)s and %(key)s::text is null and name = %(name)s and set_at is not null
), woken as (
    select leasework.wake(array(select distinct q from leasework.node n, unnest(n.sleeping) q))
)
select name from (select name from limited union all select name from keyed) n, woken
