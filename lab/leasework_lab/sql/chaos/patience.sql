-- Lets this transaction be idle for long. It holds no lock that others wait for until it locks the fence, which sets a
-- short limit again.
-- locks: none
-- index: none
select set_config('idle_in_transaction_session_timeout', '60s', true)
