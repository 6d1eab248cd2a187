-- Record the progress of a running job. A locked row (perhaps by the handler's own transaction) is skipped, because
-- waiting for it would stop all other statements of this connection.
-- locks: job row FOR UPDATE SKIP LOCKED
-- index: job_pkey
with mine as materialized (
    select id from leasework.job
    where id = %(job)s and claim_token = %(token)s and node = %(node)s
    for update skip locked
), moved as (
    update leasework.job j set progress = %(share)s, progress_note = %(note)s
    from mine where j.id = mine.id
)
select cancel_requested from leasework.job
where id = %(job)s and claim_token = %(token)s and node = %(node)s
