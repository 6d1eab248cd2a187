-- The final read: the signals that nobody has taken.
-- locks: none
-- index: a scan of inbox
select payload #>> '{}' from leasework.inbox
