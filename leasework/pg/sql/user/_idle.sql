-- Part of the statements that hold a row in the user's transaction: the server ends the session after "idle_ms" idle, if
-- it would not do so sooner. Select from `idle`, so that it runs.
-- index: none
idle as materialized (
    select set_config('idle_in_transaction_session_timeout',
                      cast(least(nullif(cast(setting as bigint), 0), cast(%(idle_ms)s as bigint)) as text), true) as idle_ms
    from pg_settings where name = 'idle_in_transaction_session_timeout'
)
