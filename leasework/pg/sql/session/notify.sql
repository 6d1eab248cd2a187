-- Notify ourselves, to test whether LISTEN delivers. False: it was not sent, see the function.
-- locks: the NOTIFY lock at commit
-- index: none
select leasework.notify(%(message)s)
