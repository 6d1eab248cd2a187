-- Certify that a node is dead, without waiting for its lease. A fenced process certifies its old identity and continues
-- under a new one. A parent certifies a process: every identity whose row says that it took the id that this parent
-- gave.
-- locks: the node rows (waits for claims in flight), then their leader rows
-- index: a scan of node; leader_node, death_pkey
with dead as (
    delete from leasework.node where id = %(node)s
       or %(process)s and info ->> 'assigned' = %(node)s::text
    returning id, leasework.worker_id(host, pid, id) as worker_id, app, release, info
), noted as (
    insert into leasework.death (node, worker_id, app, release, how)
    select id, worker_id, app, release, case when not %(process)s then 'fenced' when info ? 'left' then 'left' else 'died' end
    from dead
    on conflict (node) do nothing
), led as (
    update leasework.leader l set node = null, seq = l.seq + 1, expired = l.expired + 1
    where l.node = any (array(select id from dead union all select %(node)s::uuid))
    returning l.name
), told as (
    select leasework.notify('d:') from dead
    union all
    select leasework.notify('e:' || name) from led
)
select (select worker_id from dead order by id desc limit 1), array(select name from led), (select count(*) from told)
