-- Make a batch with its jobs: see leasework.make_batch.
-- edge: new -> available
-- edge: new -> scheduled
-- locks: unique keys
-- index: job_pkey, job_key_pkey, batch_pkey
select id, created from leasework.make_batch(%(batch)s, %(definition)s::jsonb, %(jobs)s::jsonb, %(now)s)
