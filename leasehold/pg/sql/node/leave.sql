-- A clean stop: the node gave back its jobs and takes its row away. Its death is noted here, before the
-- trigger does, which would call it one that died.
-- locks: own node row
-- index: node_pkey; death_pkey
with gone as (
    delete from leasehold.node where id = %(node)s and token = %(token)s
    returning id, host, pid, app, release
), noted as (
    insert into leasehold.death (node, worker_id, app, release, how)
    select id, leasehold.worker_id(host, pid, id), app, release, 'left' from gone
    on conflict (node) do nothing
)
select id from gone
