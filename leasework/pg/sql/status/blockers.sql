-- Sessions that hold a strong lock on a table of leasework, or that leasework's sessions wait for and that do not wait
-- themselves. It reads no table of leasework, so that it answers beside a locked one. Quoted text is removed.
-- locks: none
-- index: none
with clock as (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as at
), held as materialized (
    select l.pid, min(c.relname) as name
    from pg_locks l
    join pg_class c on c.oid = l.relation and c.relkind in ('r', 'p')
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'leasework'
    where l.granted and l.pid <> pg_backend_pid()
      and l.database = (select oid from pg_database where datname = current_database())
      and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    group by l.pid
), waits as materialized (
    select a.pid, extract(epoch from (select at from clock) - a.query_start)::float8 as seconds, b.pid as by
    from pg_stat_activity a cross join lateral unnest(pg_blocking_pids(a.pid)) b (pid)
    where a.datname = current_database() and a.wait_event_type = 'Lock' and starts_with(a.application_name, 'leasework ')
)
select a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''), a.state,
       extract(epoch from (select at from clock) - a.xact_start)::float8, coalesce(h.name, ''),
       count(distinct w.pid), coalesce(max(w.seconds), 0)::float8,
       left(regexp_replace(coalesce(a.query, ''), '''[^'']*(''|$)', '''…''', 'g'), 200)
from pg_stat_activity a
left join held h on h.pid = a.pid
left join waits w on w.by = a.pid
where (h.pid is not null or w.pid is not null) and a.pid not in (select pid from waits)
group by a.pid, a.usename, a.application_name, a.state, a.xact_start, h.name, a.query
order by 8 desc, 5 desc nulls last limit 20
