-- A node shall claim nothing, or claim again: it is told with its next renewal.
-- locks: the node's row
-- index: node_pkey
update leasehold.node set halted = %(halted)s where id = %(node)s
returning leasehold.worker_id(host, pid, id), leasehold.notify('c:' || id)
