-- After an ack with unknown outcome: which of these were taken from us? Whoever takes a job changes its
-- token, or takes it away; what our own outcome left, due again it may be, bears ours.
-- locks: none
-- index: job_pkey, job_done_pkey
select a.id
from unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) as a (id, claim_token)
where exists (select 1 from leasehold.job j
              where j.id = a.id and j.claim_token is distinct from a.claim_token)
   or exists (select 1 from leasehold.job_done d
              where d.id = a.id and d.claim_token is distinct from a.claim_token)
