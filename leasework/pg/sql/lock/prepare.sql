-- Settings of the connection that will hold a lock, for the session or only for its transaction. The server must notice
-- when we are gone, and must not end the session while it only holds the lock. The nonce is our mark: behind a pooler
-- the next statement would not find it.
-- locks: none
-- index: none
select pg_backend_pid(), set_config('leasework_lock.nonce', %(nonce)s, %(local)s),
       set_config('statement_timeout', %(statement_ms)s, %(local)s),
       set_config('idle_in_transaction_session_timeout', '0', %(local)s),
       set_config('idle_session_timeout', '0', %(local)s),
       case when current_setting('transaction_timeout', true) is not null
            then set_config('transaction_timeout', '0', %(local)s) end,
       set_config('client_connection_check_interval', '500ms', %(local)s),
       set_config('tcp_keepalives_idle', '2', %(local)s),
       set_config('tcp_keepalives_interval', '1', %(local)s),
       set_config('tcp_keepalives_count', '2', %(local)s),
       set_config('tcp_user_timeout', '4000', %(local)s)
