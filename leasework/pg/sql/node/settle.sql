-- Settle those of these dead nodes that hold no job. One that still holds a job, perhaps a locked row, stops no other.
-- locks: death rows, then their rows of claimed_to
-- index: claimed_to_pkey, death_pkey; job_ready (each level as far as these nodes have claimed)
with levels as materialized (
    select c.queue, c.level, max(c.seat) as seat from leasework.claimed_to c
    where c.node = any (%(nodes)s::uuid[]) group by 1, 2
), held as materialized (
    select distinct j.node from levels l
    cross join lateral (
        select j.node from leasework.job j
        where j.ready and j.queue = l.queue and leasework.level(j.priority, j.fresh) = l.level and j.seat <= l.seat
          and j.node = any (%(nodes)s::uuid[])
        offset 0
    ) j
), empty as (
    update leasework.death d set settled = true
    where d.node = any (%(nodes)s::uuid[]) and not d.settled and d.node <> all (array(select node from held))
    returning d.node
), forgotten as (
    delete from leasework.claimed_to c using empty e where c.node = e.node
)
select node from empty
