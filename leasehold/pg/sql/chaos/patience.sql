-- For this transaction alone: it may stand idle for long; it holds no lock that others wait for.
-- locks: none
-- index: none
select set_config('idle_in_transaction_session_timeout', '60s', true)
