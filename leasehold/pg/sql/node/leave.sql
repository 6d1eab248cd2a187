-- A clean stop: the node has given back its jobs and deletes its row. It records its death as "left" before the trigger
-- would record it as "died". A node that runs no jobs has none to rescue.
-- locks: own node row
-- index: node_pkey; death_pkey
with gone as (
    delete from leasehold.node where id = %(node)s and token = %(token)s
    returning id, host, pid, app, release, executes
), noted as (
    insert into leasehold.death (node, worker_id, app, release, how, settled)
    select id, leasehold.worker_id(host, pid, id), app, release, 'left', not executes from gone
    on conflict (node) do nothing
)
select id from gone
