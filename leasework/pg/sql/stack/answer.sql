-- Store the node's answer, only if its request is the newest.
-- locks: the row
-- index: a scan of stack, which holds an hour's requests at most
update leasework.stack
set answered_at = coalesce(%(now)s::timestamptz, now()), says = %(says)s
where request = %(request)s and node = %(node)s
returning job_id
