-- Read a lock's row and who is first in its queue and, with "wait", take a place in the queue. Having to wait for
-- another holder is counted. A process that has not renewed its lease lately is passed over: where only scripts use
-- locks, nobody declares it dead. The order is a courtesy, so the wall clock may decide.
-- locks: own node row FOR KEY SHARE, by the foreign key
-- index: leader_pkey, fence_pkey, node_pkey, bid_pkey, bid_order; a scan of incarnation
with placed as (
    insert into leasehold.bid (name, node)
    select %(name)s, n.id from leasehold.node n where n.id = %(node)s and %(wait)s
    on conflict (name, node) do nothing
    returning name
), contended as (
    insert into leasehold.tally (metric, subject, n)
    select 'lock_contended', '', 1 from placed join leasehold.leader l using (name) where l.node is not null
)
select l.node, l.token, l.seq, l.lease_seconds, leasehold.timeline(),
       (select b.node from leasehold.bid b join leasehold.node n on n.id = b.node
        where b.name = l.name
          and n.renewed_at > coalesce(%(now)s::timestamptz, clock_timestamp()) - 2 * n.lease_seconds * interval '1 second'
        order by b.ticket limit 1),
       (select i.settled from leasehold.incarnation i)
from leasehold.leader l join leasehold.fence f using (name) where l.name = %(name)s
