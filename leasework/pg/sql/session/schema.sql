-- The schema's number, and the oldest number that a program must know to work with it.
-- locks: none
-- index: a scan of migration
select max(number), coalesce(max(min_known), 0) from leasework.migration
