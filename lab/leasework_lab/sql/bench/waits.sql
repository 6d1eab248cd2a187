-- The results of the jobs that measured how long they waited, in seconds.
-- locks: none
-- index: a scan of job_done
select (result #>> '{}')::float8 from leasework.job_done
where state = 'completed' and jsonb_typeof(result) = 'number'
