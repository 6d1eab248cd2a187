-- The server's clock, in seconds. Exact, whatever the role's setting for the digits of floats.
-- locks: none
-- index: none
select extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()))
