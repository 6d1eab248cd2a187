-- Bulk insert of jobs that are due at once and hold no key.
-- edge: new -> available
-- locks: inserts only
-- index: job_pkey
copy leasework.job (id, {{JobOptions}}, trace, payload) from stdin
