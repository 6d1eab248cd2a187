-- Which migrations the schema has, and the oldest program that can work with it.
-- locks: none
-- index: a scan of migration
select max(number), max(min_known) from leasehold.migration
