-- The database's time as a number, because a framework may have its own way to read times.
-- locks: none
-- index: none
select cast(extract(epoch from coalesce(cast(%(now)s as timestamptz), clock_timestamp())) as double precision)
