-- These dead nodes hold no job any more.
-- locks: death rows
-- index: death_pkey; job_ready, all of it
update leasehold.death d set settled = true
where d.node = any (%(nodes)s::uuid[]) and not d.settled
  and not exists (select 1 from leasehold.job j where j.ready and j.node = any (%(nodes)s::uuid[]))
returning d.node
