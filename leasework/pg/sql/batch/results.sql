-- The ended jobs of a batch, in their order.
-- locks: none
-- index: job_done_batch
select id, state, result, last_error from leasework.job_done
where batch = %(batch)s and id > %(after)s order by id limit %(limit)s
