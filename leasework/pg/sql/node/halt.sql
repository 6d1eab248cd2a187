-- Halt a node's claiming, or resume it. The node learns it with its next renewal.
-- locks: the node's row
-- index: node_pkey
update leasework.node set halted = %(halted)s where id = %(node)s
returning leasework.worker_id(host, pid, id), leasework.notify('c:' || id)
