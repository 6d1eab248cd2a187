-- How far a running job is.
-- locks: job row
-- index: job_pkey
update leasehold.job set progress = %(share)s, progress_note = %(note)s
where id = %(job)s and claim_token = %(token)s and node = %(node)s
returning cancel_requested
