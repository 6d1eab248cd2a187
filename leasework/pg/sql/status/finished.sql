-- How many jobs of each task have finished since then. Counts at most "most" jobs in all.
-- locks: none
-- index: job_done_finished
select task_name, count(*) from (
    select d.task_name from leasework.job_done d where d.finished_at >= %(since)s limit %(most)s) x
group by 1
