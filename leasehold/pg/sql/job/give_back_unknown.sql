-- Rows that say they are this node's and that it does not know: a claim whose answer was lost.
-- Only after the epoch was moved on, and only in that epoch: carried out late, when the next one has
-- begun, it would take what was claimed since and runs. By token: a job that hangs in our hands since it was taken
-- away may be the very one that was claimed again.
-- edge: running -> available
-- token: none, because nobody was ever told the claim_token of these rows
-- locks: own node row FOR KEY SHARE (the next epoch waits for us), job rows
-- index: job_ready, all of it: what runs is ready, and what waits is not
with mine as materialized (
    select id from leasehold.node where id = %(node)s and epoch = %(epoch)s for key share
)
update leasehold.job j set node = null, claim_token = null, attempt = j.attempt - 1, started_at = null
from mine where j.ready and j.node = mine.id and j.claim_token <> all (%(known)s::bigint[])
returning j.id
