-- Declare dead a node whose row was seen unchanged for a whole lease; the parameters name that row. What it held is
-- free then, because every lease depends on the lease of its node.
-- The delete waits for running claims, which hold the row FOR KEY SHARE. Each wait ends after half a second, because
-- other nodes may be dead as well.
-- locks: fence FOR SHARE, then the node row, then its leader rows
-- index: fence_pkey, node_pkey, leader_node
with patience as materialized (
    select set_config('lock_timeout', '500ms', true)
), f as materialized (
    select 1 from patience, leasework.fence where name = %(term_leader)s and token = %(term_token)s for share of fence
), dead as (
    delete from leasework.node
    where id = %(node)s and token = %(token)s and seq = %(seq)s and exists (select 1 from f)
    returning id, case when info ? 'left' then '' else leasework.worker_id(host, pid, id) end as worker_id
), led as (
    update leasework.leader l set node = null, seq = l.seq + 1, expired = l.expired + 1 from dead where l.node = dead.id
    returning l.name
), told as (
    select leasework.notify('e:' || name) from led
)
select worker_id, (select count(*) from told) from dead
