-- The best available jobs of a queue at this moment. Nothing is locked, so claim_candidates must check them again.
-- locks: none
-- index: job_ready
select id from leasework.job
where ready and node is null and queue = %(queue)s and task_name <> all (%(not_tasks)s::text[])
order by leasework.level(priority, fresh), seat
offset %(skip)s
limit %(limit)s
