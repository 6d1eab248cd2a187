-- The server's version, and the settings that affect the results.
-- locks: none
-- index: none
select name, current_setting(name) from pg_settings
where name in ('server_version', 'fsync', 'synchronous_commit', 'shared_buffers', 'max_wal_size',
               'full_page_writes', 'autovacuum')
order by name
