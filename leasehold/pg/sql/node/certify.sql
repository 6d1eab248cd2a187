-- A death certificate, by whoever knows that the process is dead: no wait for its lease.
-- locks: the node row (waits for claims in flight), then its leader rows
-- index: node_pkey; a scan of leader
with dead as (
    delete from leasehold.node where id = %(node)s
    returning id, leasehold.worker_id(host, pid, id) as worker_id
), led as (
    update leasehold.leader l set node = null, seq = l.seq + 1 where l.node = %(node)s returning l.name
), told as (
    select pg_notify('leasehold', 'd:') from dead
    union all
    select pg_notify('leasehold', 'e:' || name) from led
)
select (select worker_id from dead), array(select name from led), (select count(*) from told)
