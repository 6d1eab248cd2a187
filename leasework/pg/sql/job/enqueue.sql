-- Enqueue one job or many; see the function in the migrations.
-- edge: new -> available
-- edge: new -> scheduled
-- locks: unique keys
-- index: job_pkey, job_key_pkey
select id, created from leasework.enqueue(%(jobs)s::jsonb, %(now)s::timestamptz, true)
