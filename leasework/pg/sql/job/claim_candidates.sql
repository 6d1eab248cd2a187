-- Claim those jobs of a list, which may be stale, whose advisory lock is free. Each is checked again under its lock,
-- because others may have claimed, finished or postponed it since. The locks belong to the transaction, so that they
-- are released only when the claim is visible to all.
-- edge: available -> running
-- locks: own node row FOR KEY SHARE, advisory locks (tried), job rows FOR UPDATE SKIP LOCKED
-- index: job_pkey, node_pkey, claimed_to_pkey
with mine as materialized (
    select id from leasework.node where id = %(node)s and epoch = %(epoch)s for key share
), tried as materialized (
    select c.id from unnest(%(jobs)s::uuid[]) as c (id)
    where (select count(*) from mine) > 0
      and pg_try_advisory_xact_lock(leasework.lock_class('leasework.job'),
                                    ('x' || right(c.id::text, 8))::bit(32)::integer)
    limit %(limit)s
), checked as materialized (
    select ctid as at_row from leasework.job
    where id = any (array(select id from tried))
      and case when ready then node is null end -- the double check, hidden from job_ready
    for update skip locked
), taken as (
    update leasework.job j
    set node = mine.id, attempt = least(j.attempt + 1, 32767), claimed_at = coalesce(%(now)s::timestamptz, now()),
        claim_token = (select leasework.timeline() - 1 << 32) + nextval('leasework.token_seq')
    from mine
    where j.ctid = any (array(select at_row from checked))
    returning j.*
), noted as (
    insert into leasework.claimed_to (node, queue, level, seat)
    select t.node, t.queue, t.level, max(t.seat) + 10000
    from (select *, leasework.level(priority, fresh) as level from taken) t group by 1, 2, 3
    having max(t.seat) > coalesce((select c.seat from leasework.claimed_to c
                                   where c.node = t.node and c.queue = t.queue and c.level = t.level), 0)
    on conflict on constraint claimed_to_pkey do update set seat = excluded.seat
)
select t.id, t.task_name, t.queue, t.payload, t.priority, t.attempt, t.max_attempts, t.crashes,
       t.claim_token, t.timeout_seconds, t.requeue_seconds, coalesce(t.tick_at, t.run_at),
       t.history, t.schedule, t.deadlines, t.trace, t.version
from taken t
order by array_position(%(jobs)s::uuid[], t.id)
