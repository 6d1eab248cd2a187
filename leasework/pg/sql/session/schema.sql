-- The schema's number (0: no migration is recorded), and the oldest number that a program must know to work with it.
-- locks: none
-- index: a scan of migration
select coalesce(max(number), 0), coalesce(max(min_known), 0) from leasework.migration
