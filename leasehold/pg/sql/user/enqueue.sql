-- Enqueue in a transaction of the user's. Casts in words: some drivers read a colon as a parameter.
-- edge: new -> available
-- edge: new -> scheduled
-- locks: unique keys
-- index: job_pkey, job_key_pkey
select id, created from leasehold.enqueue(cast(%(jobs)s as jsonb))
