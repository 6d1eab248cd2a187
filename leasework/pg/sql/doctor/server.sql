-- The doctor's first questions to the server.
-- locks: none
-- index: none
select pg_backend_pid(), current_setting('server_version_num')::int, current_user::text, current_database()::text,
       (select jsonb_object_agg(s.name, s.reset_val) from pg_settings s
        where s.name in ('synchronous_commit', 'fsync', 'full_page_writes', 'autovacuum', 'statement_timeout',
                         'transaction_timeout'))
