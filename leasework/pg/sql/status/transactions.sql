-- What blocks vacuum: transactions, prepared ones and replication slots, the oldest snapshot first. Quoted text is
-- removed from their queries. Of other roles' sessions, PostgreSQL shows role and age, but neither kind nor start, to those
-- who are no members of pg_read_all_stats. The sender to a standby that reports its queries has no database.
-- locks: none
-- index: none
select * from (
    select a.pid::text as pid, case when a.datname is null then 'standby' else 'transaction' end as what, a.usename::text, a.application_name,
           coalesce(host(a.client_addr), 'local'), a.state,
           extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - a.xact_start)::float8 as open_seconds,
           greatest(age(a.backend_xmin), age(a.backend_xid))::bigint as xmin_age,
           left(regexp_replace(a.query, '''[^'']*(''|$)', '''…''', 'g'), 200)
    from pg_stat_activity a
    where (a.datname = current_database() or a.datname is null) and a.pid <> pg_backend_pid()
      and (a.backend_type in ('client backend', 'walsender') or a.backend_type is null and a.usename is not null)
      and coalesce(a.backend_xmin, a.backend_xid) is not null
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
order by xmin_age desc, open_seconds desc nulls last limit %(limit)s
