-- The server processes of leasework's connections to this database.
-- locks: none
-- index: none
select pid from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'leasework %%'
