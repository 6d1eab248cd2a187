-- What the server is and how it is set, as far as the figures depend on it.
-- locks: none
-- index: none
select name, current_setting(name) from pg_settings
where name in ('server_version', 'fsync', 'synchronous_commit', 'shared_buffers', 'max_wal_size',
               'full_page_writes', 'autovacuum')
order by name
