-- After a claim with unknown outcome: no claim of an earlier epoch can commit after this. The parameter is the new
-- epoch, so that this statement, repeated or late, raises it no further. FOR UPDATE waits for running claims, which
-- hold the row FOR KEY SHARE. A claim that waits for this statement then reads the new epoch: after a weaker lock,
-- PostgreSQL would let it have the row as it was.
-- locks: own node row FOR UPDATE
-- index: node_pkey
with held as materialized (
    select id from leasework.node where id = %(node)s and token = %(token)s for update
)
update leasework.node n set epoch = greatest(n.epoch, %(epoch)s) from held where n.id = held.id returning n.epoch
