-- The jobs that these have made with ctx.gather and ctx.spawn, and those have made: the parents first; with "unfinished" those that have not ended.
-- locks: none
-- index: batch_parent, job_batch, job_done_batch, job_pkey, job_done_pkey
with recursive family as (
    select g.id, null::uuid as parent, 0 as depth, false as over from unnest(%(jobs)s::uuid[]) g (id)
    union all
    select x.id, x.parent, f.depth + 1, x.over from family f
    cross join lateral (select id, parent from leasework.batch where parent = f.id offset 0) b
    cross join lateral (select j.id, b.parent, false as over from leasework.job j where j.batch = b.id
                        union all select d.id, b.parent, true from leasework.job_done d where d.batch = b.id) x
    where f.depth < 50
), first as (
    select * from family where depth > 0 and not (over and %(unfinished)s) order by depth, id limit %(limit)s
)
select f.id, f.parent, f.depth, j.task_name, j.state, j.started_at, j.completed_at
from first f cross join lateral (
    select x.task_name, x.state, x.started_at, x.completed_at from leasework.jobs x where x.id = f.id limit 1) j
order by f.depth, f.id
