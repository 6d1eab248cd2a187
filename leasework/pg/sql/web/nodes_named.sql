-- The nodes, live and dead, whose worker id begins with this text, or that have this id.
-- locks: none
-- index: a scan of node and death
select node from leasework.workers
where starts_with(worker_id, %(name)s) or node::text = %(name)s
limit %(limit)s
