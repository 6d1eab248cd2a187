-- The server's clock, in seconds.
-- locks: none
-- index: none
select extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()))::float8
