-- Dead nodes that may still hold jobs, after the first "skip".
-- locks: none
-- index: death_open (all of it)
select node, worker_id from leasework.death where not settled order by died_at, node
limit %(limit)s offset %(skip)s
