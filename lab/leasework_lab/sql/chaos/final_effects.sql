-- The final read: the effects of completing transactions.
-- locks: none
-- index: a scan of chaos_effect
select ref, job, token from leasework.chaos_effect
