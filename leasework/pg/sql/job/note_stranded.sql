-- Note nodes that hold jobs and do not exist, where the rescuer finds their jobs: an open death, and how far each has
-- claimed. Usually that is there already, and nothing is written. It is missing if somebody changed rows by hand:
-- truncated the nodes, gave a running job another priority, or deleted from claimed_to or death. It reads a range of
-- pages of the table, and depends on no other note. Jobs that nobody changes stay on their page, so that a walk over all
-- pages meets each of them.
-- A claim commits after its node's row, so the snapshot of one statement that shows the claim also shows the row, unless
-- the node is dead. The rescuer looks for the node again.
-- The answer: where the next range begins (0: at the first page), and the nodes that were not noted.
-- locks: rows of claimed_to and death, of dead nodes only
-- index: a range of pages of job; node_pkey or a scan of node, claimed_to_pkey, death_pkey
with stranded as materialized (
    select j.node, j.queue, leasework.level(j.priority, j.fresh) as level, max(j.seat) as seat
    from leasework.job j
    where j.ctid >= ('(' || %(page)s::bigint || ',0)')::tid
      and j.ctid < ('(' || %(page)s::bigint + %(pages)s::bigint || ',0)')::tid
      and j.ready and j.node is not null
      and not exists (select 1 from leasework.node n where n.id = j.node)
    group by 1, 2, 3
), noted as (
    insert into leasework.claimed_to as c (node, queue, level, seat)
    select s.node, s.queue, s.level, s.seat from stranded s
    where not exists (select 1 from leasework.claimed_to o
                      where o.node = s.node and o.queue = s.queue and o.level = s.level and o.seat >= s.seat)
    order by 1, 2, 3
    on conflict on constraint claimed_to_pkey do update set seat = greatest(c.seat, excluded.seat)
    returning c.node
), dead as (
    insert into leasework.death (node, worker_id, app, release, how)
    select distinct s.node, leasework.worker_id('?', 0, s.node), '', '', 'gone' from stranded s
    where not exists (select 1 from leasework.death o where o.node = s.node and not o.settled)
    order by 1
    on conflict (node) do update set settled = false
    returning node
)
select case when pg_relation_size('leasework.job')
                 > (%(page)s::bigint + %(pages)s::bigint) * current_setting('block_size')::bigint
            then %(page)s::bigint + %(pages)s::bigint else 0 end,
       array(select node from noted union select node from dead)
