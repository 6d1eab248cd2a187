-- Settings of a session of our own (never behind a pooler, where they would leak to others).
-- Statements look anew at what was committed while they waited, whatever the role has as its default.
-- An idle connection is no reason to end it, nor is a long migration. Times are written in UTC.
-- A vanished client must not go on applying what it waited for; jit only costs on short statements.
-- Steady: statements that come again and again must find their rows by an index. Else they have the
-- plan of an empty table when many jobs come, which reads and sorts all of them (ADR 22).
-- locks: none
-- index: none
select set_config('synchronous_commit', %(commit)s, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('statement_timeout', %(statement_ms)s, false),
       set_config('lock_timeout', '5s', false),
       set_config('idle_in_transaction_session_timeout', '2s', false),
       set_config('idle_session_timeout', '0', false),
       case when current_setting('transaction_timeout', true) is not null
            then set_config('transaction_timeout', '0', false) end,
       set_config('timezone', 'UTC', false),
       set_config('intervalstyle', 'postgres', false),
       set_config('standard_conforming_strings', 'on', false),
       set_config('extra_float_digits', '1', false),
       set_config('client_connection_check_interval', '500ms', false),
       set_config('jit', 'off', false),
       set_config('enable_seqscan', case when %(steady)s then 'off' else current_setting('enable_seqscan') end, false),
       set_config('enable_bitmapscan', case when %(steady)s then 'off' else current_setting('enable_bitmapscan') end, false)
