-- Nodes that are gone and whose jobs were not all looked for yet, but for the first of them.
-- locks: none
-- index: death_open (all of it)
select node, worker_id from leasehold.death where not settled order by died_at, node
limit %(limit)s offset %(skip)s
