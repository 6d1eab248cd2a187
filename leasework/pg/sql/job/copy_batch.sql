-- The same as job/copy for the jobs of a batch.
-- edge: new -> available
-- locks: inserts only
-- index: job_pkey
copy leasework.job (id, {{JobOptions}}, batch, trace, payload) from stdin
