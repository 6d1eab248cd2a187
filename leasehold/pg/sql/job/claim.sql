-- Claim jobs of one queue for a node, best first. No indexed column changes: a HOT update.
-- By ctid, because a join on id can flip to a hash join over the whole table. The look is at a span
-- and, if that has no end, at what is more urgent. Jobs of the last two seconds are never before its
-- beginning, for their transactions commit in an order of their own.
-- edge: available -> running
-- locks: own node row FOR KEY SHARE (its death waits for us), job rows FOR UPDATE SKIP LOCKED
-- index: job_ready, node_pkey
with mine as materialized (
    select id from leasehold.node where id = %(node)s and epoch = %(epoch)s for key share
), urgent as materialized (
    select ctid as at_row from leasehold.job
    where ready and node is null and queue = %(queue)s and task_name <> all (%(not_tasks)s::text[])
      and priority < %(urgent)s
    order by priority, run_at, id
    limit %(limit)s
    for update skip locked
), usual as materialized (
    select ctid as at_row from leasehold.job
    where ready and node is null and queue = %(queue)s and task_name <> all (%(not_tasks)s::text[])
      and (priority, run_at, id) >= (%(priority)s,
          least(%(run_at)s, coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(unsettled)s)), %(id)s)
      and (priority, run_at, id) < (%(end_priority)s, %(end_run_at)s, %(end_id)s)
    order by priority, run_at, id
    limit %(limit)s - (select count(*) from urgent)
    for update skip locked
)
update leasehold.job j
set node = mine.id, attempt = least(j.attempt + 1, 32767), claimed_at = coalesce(%(now)s::timestamptz, now()),
    claim_token = (select leasehold.timeline() - 1 << 32) + nextval('leasehold.token_seq')
from mine
where j.ctid = any (array(select at_row from urgent union all select at_row from usual))
returning j.id, j.task_name, j.queue, j.payload, j.priority, j.attempt, j.max_attempts, j.crashes,
          j.claim_token, j.timeout_seconds, j.requeue_seconds, coalesce(j.tick_at, j.run_at),
          j.history, j.schedule, j.deadlines, j.trace
