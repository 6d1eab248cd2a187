-- For this transaction alone: it may stand idle for long. It holds no lock that others wait for,
-- until it asks for the fence, which makes it impatient again.
-- locks: none
-- index: none
select set_config('idle_in_transaction_session_timeout', '60s', true)
