-- The jobs of the batches that these jobs made: of all generations, the parents first.
-- locks: none
-- index: batch_parent, job_batch, job_done_batch
with recursive family as (
    select x.id, x.parent, 1 as depth from leasework.batch b
    cross join lateral (select j.id, b.parent from leasework.job j where j.batch = b.id
                        union all select d.id, b.parent from leasework.job_done d where d.batch = b.id) x
    where b.parent = any (%(jobs)s::uuid[])
    union all
    select x.id, x.parent, f.depth + 1 from family f join leasework.batch b on b.parent = f.id
    cross join lateral (select j.id, b.parent from leasework.job j where j.batch = b.id
                        union all select d.id, b.parent from leasework.job_done d where d.batch = b.id) x
    where f.depth < 50
)
select id, parent from family order by depth, id limit %(limit)s
