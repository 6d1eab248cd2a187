-- Wake the nodes that sleep on these queues.
-- locks: the NOTIFY lock at commit, only if a node sleeps
-- index: a scan of node
select leasework.wake(%(queues)s::text[])
