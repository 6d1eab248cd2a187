-- The final read: the duties that committed.
-- locks: none
-- index: a scan of chaos_duty
select duty, term from leasework.chaos_duty
