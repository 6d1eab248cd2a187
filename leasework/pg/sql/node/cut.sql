-- The jobs that a stop of this node has interrupted since then.
-- locks: none
-- index: attempt_outcome
select job_id from leasework.attempt
where ended_at >= %(since)s and node = %(node)s and outcome = 'stopped' order by ended_at limit %(limit)s
