-- Record the queues on which this node sleeps and wants to be woken.
-- locks: own node row
-- index: node_pkey
update leasework.node set sleeping = %(queues)s where id = %(node)s
