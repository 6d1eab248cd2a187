-- Counts for status, each capped, so that a full queue needs no scan. Running jobs are at the head of a level of a queue,
-- also those whose node does not exist and whose death no rescuer will follow.
-- locks: none
-- index: job_ready (in order), job_waiting (in order), job_unknown (in order), job_done_bad, death_pkey; a scan of node and death_open
with recursive {{job/_lanes}}, lanes as materialized (
    select * from lane limit 10000
), looked as materialized (
    select h.node from lanes l
    cross join lateral (
        select j.node from leasework.job j
        where j.ready and j.queue = l.queue and leasework.level(j.priority, j.fresh) = l.level
        order by j.seat limit (select greatest(10000 / greatest(count(*), 1), 10) from lanes)) h
    where h.node is not null
)
select (select count(*) from looked h
        where not exists (select 1 from leasework.node n where n.id = h.node)
          and not exists (select 1 from leasework.death d where d.node = h.node and not d.settled)),
       (select count(*) from (select 1 from leasework.job where not ready and held_because is distinct from 'limit' limit 10000) x),
       (select count(*) from (select 1 from leasework.job where held_because in ('unknown_task', 'unknown_version')
                              and not ready limit 10000) x),
       (select count(*) from (select 1 from leasework.job_done where state = 'quarantined' limit 10000) x),
       (select coalesce(jsonb_agg(distinct task), '[]')
        from (select leasework.needs(task_name, version) as task from leasework.job
              where held_because in ('unknown_task', 'unknown_version') and not ready limit 1000) x),
       (select coalesce(jsonb_agg(distinct task_name), '[]')
        from (select task_name from leasework.job_done where state = 'quarantined' limit 1000) x)
