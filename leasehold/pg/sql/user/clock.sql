-- The database's time, as the user's transaction sees it.
-- locks: none
-- index: none
select coalesce(cast(%(now)s as timestamptz), clock_timestamp())
