-- Declare a node dead that was seen unchanged for a whole lease: what was observed is named.
-- The delete waits for claims in flight, which hold the row FOR KEY SHARE.
-- locks: fence FOR SHARE, then the node row
-- index: node_pkey
with f as materialized (
    select 1 from leasehold.fence where name = %(leader)s and token = %(term)s for share
)
delete from leasehold.node
where id = %(node)s and token = %(token)s and seq = %(seq)s and exists (select 1 from f)
returning leasehold.worker_id(host, pid, id)
