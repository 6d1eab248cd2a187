-- What blocks vacuum: open transactions, prepared ones and replication slots, the oldest snapshot first. Quoted text is
-- removed from their queries.
-- locks: none
-- index: none
select * from (
    select a.pid::text as pid, 'transaction' as what, a.usename::text, a.application_name,
           coalesce(host(a.client_addr), 'local'), a.state,
           extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - a.xact_start)::float8 as open_seconds,
           age(a.backend_xmin)::bigint as xmin_age,
           left(regexp_replace(a.query, '''[^'']*(''|$)', '''…''', 'g'), 200)
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid()
      and (a.xact_start is not null or a.backend_xmin is not null)
    union all
    select p.gid, 'prepared transaction', p.owner::text, '', '', 'prepared',
           extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - p.prepared)::float8,
           age(p.transaction)::bigint, ''
    from pg_prepared_xacts p where p.database = current_database()
    union all
    select r.slot_name::text, 'replication slot', '', '', '', case when r.active then 'active' else 'inactive' end,
           null, greatest(age(r.xmin), age(r.catalog_xmin))::bigint, ''
    from pg_replication_slots r where r.xmin is not null or r.catalog_xmin is not null
) t
order by xmin_age desc nulls last, open_seconds desc nulls last limit %(limit)s
