-- What happened to the user's transaction in which a job was completed. (free, there): it was rolled back, and the row
-- is ours again. (not free, there): it is still open. (not free, not there): it committed, or the claim was lost.
-- locks: job row FOR UPDATE SKIP LOCKED
-- index: job_pkey
with mine as materialized (
    select id from leasework.job
    where id = %(job)s and claim_token = %(token)s and node = %(node)s
    for update skip locked
)
select exists (select 1 from mine),
       exists (select 1 from leasework.job
               where id = %(job)s and claim_token = %(token)s and node = %(node)s)
