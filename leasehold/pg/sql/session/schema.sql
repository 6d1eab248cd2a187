-- Which migrations the schema has, and the oldest program that can work with it.
-- locks: none
-- index: migration_pkey
select max(number), max(min_known) from leasehold.migration
