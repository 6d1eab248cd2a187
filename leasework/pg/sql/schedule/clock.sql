-- The database's time.
-- locks: none
-- index: none
select coalesce(%(now)s::timestamptz, now())
