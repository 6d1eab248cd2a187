-- Claim those of a list, which may be stale, whose advisory lock is free. Each is looked at once
-- more under its lock: others may have claimed, finished or postponed it since. The locks are of
-- the transaction, so that they go when the claim is there for all to see, and not before.
-- edge: available -> running
-- locks: own node row FOR KEY SHARE, advisory locks (tried), job rows FOR UPDATE SKIP LOCKED
-- index: job_pkey, node_pkey
with mine as materialized (
    select id from leasehold.node where id = %(node)s and epoch = %(epoch)s for key share
), tried as materialized (
    select c.id from unnest(%(ids)s::uuid[]) as c (id)
    where (select count(*) from mine) > 0
      and pg_try_advisory_xact_lock(leasehold.lock_class('leasehold.job'),
                                    ('x' || right(c.id::text, 8))::bit(32)::integer)
    limit %(limit)s
), checked as materialized (
    select ctid as at_row from leasehold.job
    where id = any (array(select id from tried))
      and case when ready then node is null end -- the double check, hidden from job_ready
    for update skip locked
)
update leasehold.job j
set node = mine.id, attempt = least(j.attempt + 1, 32767), claimed_at = coalesce(%(now)s::timestamptz, now()),
    claim_token = (select leasehold.timeline() - 1 << 32) + nextval('leasehold.token_seq')
from mine
where j.ctid = any (array(select at_row from checked))
returning j.id, j.task_name, j.queue, j.payload, j.priority, j.attempt, j.max_attempts, j.crashes,
          j.claim_token, j.timeout_seconds, j.requeue_seconds, coalesce(j.tick_at, j.run_at),
          j.history, j.schedule, j.deadlines, j.trace
