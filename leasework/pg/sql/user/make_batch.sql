-- Make a batch with its jobs in the user's transaction: see leasework.make_batch.
-- edge: new -> available
-- edge: new -> scheduled
-- locks: unique keys
-- index: job_pkey, job_key_pkey, batch_pkey
select id, created from leasework.make_batch(cast(%(batch)s as uuid), cast(cast(%(definition)s as text) as jsonb),
                                             cast(cast(%(jobs)s as text) as jsonb))
