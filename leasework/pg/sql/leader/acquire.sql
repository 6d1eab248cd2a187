-- Take over by compare-and-swap: the row and the timeline must be as observed. The client has waited W, or the row was
-- resigned, or it names this node, which holds no term. A fence that is missing or ahead rolls everything back: there
-- is no holder without a token. An attempt that finds the row changed is counted as contention. Taking a lock ends the
-- wait for it, and deletes all terms of the lock but the newest. A transaction that asserts the old term may stay open
-- for long. Each wait ends after a second, which is less than a call of the guard may take.
-- locks: leader row, then fence row (waits for duties of the old term, which hold it FOR SHARE)
-- index: leader_pkey, fence_pkey, bid_pkey, term_pkey, node_pkey
with patience as materialized (
    select set_config('lock_timeout', '1s', true)
), taken as (
    update leasework.leader l
    set node = %(node_id)s, token = greatest(l.token + 1, leasework.timeline() - 1 << 32), seq = l.seq + 1,
        lease_seconds = %(lease_seconds)s, acquired = l.acquired + 1,
        expired = l.expired + (l.node is not null)::integer,
        acquired_at = coalesce(%(now)s::timestamptz, clock_timestamp()),
        renewed_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    from patience
    where l.name = %(name)s and l.node is not distinct from %(seen_node)s and l.token = %(seen_token)s
      and l.seq = %(seen_seq)s and leasework.timeline() = %(seen_timeline)s
      and exists (select 1 from leasework.node n where n.id = %(node_id)s)
    returning l.name, l.token, l.acquired_at
), fenced as (
    update leasework.fence f set token = taken.token from taken
    where f.name = taken.name and f.token < taken.token
    returning f.token
), noted as (
    insert into leasework.term (name, token, node, worker_id, acquired_at)
    select taken.name, taken.token, %(node_id)s, leasework.worker_id(%(node_host)s, %(node_pid)s, %(node_id)s), taken.acquired_at
    from taken
), contended as (
    insert into leasework.tally (metric, subject, n)
    select case when starts_with(%(name)s, 'lock:') then 'lock_contended' else 'lease_contended' end,
           case when starts_with(%(name)s, 'lock:') then '' else %(name)s end, 1
    where not exists (select 1 from taken)
), served as (
    delete from leasework.bid b using taken where b.name = taken.name and b.node = %(node_id)s
), forgotten as (
    delete from leasework.term t using taken
    where t.name = taken.name and starts_with(t.name, 'lock:') and t.token < taken.token
)
select coalesce(fenced.token, leasework.refuse('the fence row of this election is missing or ahead'))
from taken left join fenced on true
