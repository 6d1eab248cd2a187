-- Settings of our own session (never behind a pooler, where they would leak to others). Read committed: a statement
-- sees what was committed while it waited, whatever the role's default. The server must not end the session for being
-- idle, or for a long migration. Times are in UTC. The statement of a vanished client must not continue after its wait.
-- jit only costs time on short statements. Steady: repeated statements must find their rows by an index. Otherwise they
-- keep the plan of an empty table when many jobs arrive, and read and sort all of them (ADR 22). Generic: statements are
-- planned once, because to plan each heartbeat anew costs as much as to run it.
-- locks: none
-- index: none
select set_config('search_path', 'pg_catalog, pg_temp', false), -- nobody else's function runs with our rights
       set_config('synchronous_commit', %(commit)s, false),
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
       set_config('enable_bitmapscan', case when %(steady)s then 'off' else current_setting('enable_bitmapscan') end, false),
       set_config('plan_cache_mode', case when %(generic)s then 'force_generic_plan' else current_setting('plan_cache_mode') end,
                  false)
