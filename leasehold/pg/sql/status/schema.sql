-- The schema's number, and the oldest that a program must know of to work with it.
-- locks: none
-- index: a scan of migration
select max(number), coalesce(max(min_known), 0) from leasehold.migration
