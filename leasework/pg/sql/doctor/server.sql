-- The doctor's first questions to the server.
-- locks: none
-- index: none
select pg_backend_pid(), current_setting('server_version_num')::int, current_user::text, current_database()::text,
       (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true), '0')::int,
       (select count(*) from pg_stat_activity a where a.usename = current_user), r.rolconnlimit,
       (select count(*) from pg_stat_activity a where a.datname = current_database()), d.datconnlimit,
       (select jsonb_object_agg(s.name, s.reset_val) from pg_settings s
        where s.name in ('synchronous_commit', 'fsync', 'full_page_writes', 'autovacuum', 'statement_timeout',
                         'transaction_timeout'))
from pg_roles r, pg_database d
where r.rolname = current_user and d.datname = current_database()
