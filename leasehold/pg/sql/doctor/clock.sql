-- The server's clock, in seconds; exact, whatever digits of a float the role is shown.
-- locks: none
-- index: none
select extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()))
