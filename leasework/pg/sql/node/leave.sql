-- A clean stop: the node has given back its jobs and deletes its row. It records its death as "left" before the trigger
-- would record it as "died". A node that runs no jobs has none to rescue. A lease whose resignation got no answer is
-- free. If a body may still run under a lease (holds), the row stays, and is buried later, as "left".
-- locks: own node row, then its leader rows
-- index: node_pkey, leader_node; death_pkey
with kept as (
    update leasework.node set info = coalesce(info, '{}') || '{"left": true}'
    where id = %(node)s and token = %(token)s and %(holds)s
), gone as (
    delete from leasework.node where id = %(node)s and token = %(token)s and not %(holds)s
    returning id, host, pid, app, release, executes
), led as (
    update leasework.leader l set node = null, seq = l.seq + 1, resigned = l.resigned + 1
    from gone where l.node = gone.id returning l.name
), told as (
    select leasework.notify('e:' || name) from led
), noted as (
    insert into leasework.death (node, worker_id, app, release, how, settled)
    select id, leasework.worker_id(host, pid, id), app, release, 'left', not executes from gone
    on conflict (node) do nothing
)
select id from gone where (select count(*) from told) >= 0
