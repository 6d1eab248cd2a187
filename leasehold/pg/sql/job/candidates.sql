-- The best available jobs of a queue as they are at this moment. Nothing is locked: whoever tries
-- them must look once more (claim_candidates).
-- locks: none
-- index: job_ready
select id from leasehold.job
where ready and node is null and queue = %(queue)s and task_name <> all (%(not_tasks)s::text[])
order by priority, fresh, seat
offset %(skip)s
limit %(limit)s
