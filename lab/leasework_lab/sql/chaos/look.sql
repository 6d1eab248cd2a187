-- The leader's row and the node that holds it, for the campaign's watcher.
-- locks: none
-- index: leader_pkey, node_pkey
select l.node, l.token, l.seq, n.pid, n.host from leasework.leader l left join leasework.node n on n.id = l.node
where l.name = %(name)s
