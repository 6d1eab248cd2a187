-- After an ack with unknown outcome: the jobs that were taken from us. Taking a job changes or removes its token. What
-- our own outcome left, even if it is due again, has our token.
-- locks: none
-- index: job_pkey, job_done_pkey
select a.id
from unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) as a (id, claim_token)
where exists (select 1 from leasework.job j
              where j.id = a.id and j.claim_token is distinct from a.claim_token)
   or exists (select 1 from leasework.job_done d
              where d.id = a.id and d.claim_token is distinct from a.claim_token)
