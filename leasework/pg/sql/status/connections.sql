-- The connections in use, and how many there may be (0 or less: no limit): of the server, the role and the database.
-- locks: none
-- index: none
select *
from (select 'server', '', count(*) filter (where backend_type = 'client backend'),
             current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                 - coalesce(current_setting('reserved_connections', true), '0')::int
      from pg_stat_activity
      union all
      select 'role', rolname::text, (select count(*) from pg_stat_activity where usename = rolname), rolconnlimit
      from pg_roles where rolname = current_user
      union all
      select 'database', datname::text, (select count(*) from pg_stat_activity a where a.datname = d.datname), datconnlimit
      from pg_database d where datname = current_database()) x
