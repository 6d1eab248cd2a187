-- These dead nodes hold no job any more. One that still holds some, a locked row it may be, stops no other.
-- locks: death rows
-- index: death_pkey; job_ready (all of it), once
with held as materialized (
    select distinct j.node from leasehold.job j where j.ready and j.node = any (%(nodes)s::uuid[])
)
update leasehold.death d set settled = true
where d.node = any (%(nodes)s::uuid[]) and not d.settled and d.node <> all (array(select node from held))
returning d.node
