-- The state of a row of job, as in the view jobs.
case when j.ready and j.node is null or j.held_because = 'limit' then 'available' when j.ready then 'running'
     when j.held_because = 'retryable' then 'retryable' else 'scheduled' end
