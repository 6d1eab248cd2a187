-- How far a running job is. A row that is locked (by the handler's own transaction, it may be) is
-- passed over: waiting for it would stop every other statement of this connection.
-- locks: job row FOR UPDATE SKIP LOCKED
-- index: job_pkey
with mine as materialized (
    select id from leasehold.job
    where id = %(job)s and claim_token = %(token)s and node = %(node)s
    for update skip locked
), moved as (
    update leasehold.job j set progress = %(share)s, progress_note = %(note)s
    from mine where j.id = mine.id
)
select cancel_requested from leasehold.job
where id = %(job)s and claim_token = %(token)s and node = %(node)s
