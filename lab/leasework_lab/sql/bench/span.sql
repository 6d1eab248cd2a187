-- The jobs that finished at their first attempt, and the seconds from the first start to the last end.
-- locks: none
-- index: a scan of job_done
select count(*), count(distinct id),
       coalesce(extract(epoch from max(finished_at) - min(started_at)), 0)::float8
from leasework.job_done where state = 'completed' and attempt = 1
