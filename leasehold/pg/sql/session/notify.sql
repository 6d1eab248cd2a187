-- A notification to ourselves: does LISTEN deliver?
-- locks: the NOTIFY lock at commit
-- index: none
select pg_notify(%(channel)s, %(message)s)
