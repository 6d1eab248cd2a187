-- The jobs that these have made with ctx.gather and ctx.spawn, and those have made: the parents first.
-- locks: none
-- index: batch_parent, job_batch, job_done_batch, job_pkey, job_done_pkey
with recursive family as (
    select x.id, x.parent, 1 as depth
    from unnest(%(jobs)s::uuid[]) p cross join lateral (
        select m.id, b.parent from leasework.batch b cross join lateral (
            select j.id from leasework.job j where j.batch = b.id
            union all select d.id from leasework.job_done d where d.batch = b.id) m
        where b.parent = p offset 0) x
    union all
    select x.id, x.parent, f.depth + 1
    from family f cross join lateral (
        select m.id, b.parent from leasework.batch b cross join lateral (
            select j.id from leasework.job j where j.batch = b.id
            union all select d.id from leasework.job_done d where d.batch = b.id) m
        where b.parent = f.id offset 0) x
    where f.depth < 50
), first as (
    select * from family order by depth, id limit %(limit)s
)
select f.id, f.parent, f.depth, j.task_name, j.state, j.started_at, j.completed_at
from first f cross join lateral (
    select x.task_name, x.state, x.started_at, x.completed_at from leasework.jobs x where x.id = f.id limit 1) j
order by f.depth, f.id
