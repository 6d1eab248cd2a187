-- What a new connection must know about the server.
-- locks: none
-- index: none
select pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
       current_setting('synchronous_commit'), current_setting('default_transaction_isolation'),
       current_setting('server_version_num')::int,
       to_regclass('leasework.migration') is not null
