-- After a claim with unknown outcome: no claim of the epoch before can commit after this. The new
-- one is named, so that this statement repeated, or carried out late, moves it no further.
-- FOR UPDATE waits for claims in flight, which hold the row FOR KEY SHARE.
-- locks: own node row FOR UPDATE
-- index: node_pkey
with held as materialized (
    select id from leasehold.node where id = %(node)s and token = %(token)s for update
)
update leasehold.node n set epoch = greatest(n.epoch, %(epoch)s) from held where n.id = held.id returning n.epoch
