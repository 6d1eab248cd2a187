-- A notification to ourselves: does LISTEN deliver? False: it was not sent, see the function.
-- locks: the NOTIFY lock at commit
-- index: none
select leasehold.notify(%(message)s)
