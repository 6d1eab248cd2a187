-- The doctor's first questions to the server.
-- locks: none
-- index: none
select pg_backend_pid(), current_setting('server_version_num')::int, current_user::text, current_database()::text,
       r.rolsuper, pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
       coalesce((select s.ssl from pg_stat_ssl s where s.pid = pg_backend_pid()), false),
       inet_server_addr() is null or inet_client_addr() << '127.0.0.0/8' or inet_client_addr() = '::1',
       (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true), '0')::int,
       r.rolconnlimit, (select count(*) from pg_stat_activity a where a.usename = current_user),
       d.datconnlimit, (select count(*) from pg_stat_activity a where a.datname = current_database())
from pg_roles r, pg_database d
where r.rolname = current_user and d.datname = current_database()
