-- Rows that say they are this node's and that it does not know: a claim whose answer was lost.
-- Only after the epoch was moved on. By token: a job that hangs in our hands since it was taken
-- away may be the very one that was claimed again.
-- edge: running -> available
-- token: none, because nobody was ever told the claim_token of these rows
-- locks: job rows
-- index: a scan of job
update leasehold.job j set node = null, claim_token = null, attempt = j.attempt - 1, started_at = null
where j.node = %(node)s and j.claim_token <> all (%(known)s::bigint[])
returning j.id
