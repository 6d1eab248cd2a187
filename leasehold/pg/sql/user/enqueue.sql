-- Enqueue in a transaction of the user's. Casts in words: some drivers read a colon as a parameter;
-- by way of text: a codec that the user set for jsonb must not encode it once more.
-- edge: new -> available
-- edge: new -> scheduled
-- locks: unique keys
-- index: job_pkey, job_key_pkey
select id, created from leasehold.enqueue(cast(cast(%(jobs)s as text) as jsonb))
