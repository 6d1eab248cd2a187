-- A clean stop: the node gave back its jobs and takes its row away.
-- locks: own node row
-- index: node_pkey
delete from leasehold.node where id = %(node)s and token = %(token)s returning id
