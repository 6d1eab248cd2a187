-- Mark a suspect as started, because a later crash of the node is blamed on the jobs that ran.
-- locks: job row
-- index: job_pkey
update leasework.job set started_at = coalesce(%(now)s::timestamptz, clock_timestamp())
where id = %(job)s and claim_token = %(token)s and node = %(node)s
returning id
