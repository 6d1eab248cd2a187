-- The demo's evidence: all runs, or those of some jobs, oldest first.
-- locks: none
-- index: a scan of demo_run
select id, job, task, tick_at, worker, attempt, started_at, finished_at
from leasework.demo_run
where %(jobs)s::uuid[] is null or job = any (%(jobs)s::uuid[])
order by id
