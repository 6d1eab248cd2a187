-- What has blocked vacuum in this database for longer than "seconds": open and prepared transactions, the oldest first.
-- PostgreSQL shows other roles' sessions only to members of pg_read_all_stats.
-- locks: none
-- index: none
select * from (
    select a.pid::text, 'transaction', a.usename::text, a.application_name, a.state,
           extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - a.xact_start)::float8 as seconds
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid()
      and coalesce(a.backend_xmin, a.backend_xid) is not null and a.backend_type = 'client backend'
    union all
    select p.gid, 'prepared transaction', p.owner::text, '', 'prepared',
           extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - p.prepared)::float8
    from pg_prepared_xacts p where p.database = current_database()
) t
where seconds >= %(seconds)s
order by seconds desc limit %(limit)s
