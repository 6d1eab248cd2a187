-- Enqueue in the user's transaction. It writes out "cast", because some drivers read a colon as a parameter, and casts
-- by way of text, because the user's codec for jsonb must not encode the value again.
-- edge: new -> available
-- edge: new -> scheduled
-- locks: unique keys
-- index: job_pkey, job_key_pkey
select id, created from leasework.enqueue(cast(cast(%(jobs)s as text) as jsonb))
