-- Nodes that are gone and whose jobs were not all looked for yet.
-- locks: none
-- index: death_open
select node, worker_id from leasehold.death where not settled order by died_at limit %(limit)s
