-- The database's time when the nodes are told to stop.
-- locks: none
-- index: none
select coalesce(%(now)s::timestamptz, now())
