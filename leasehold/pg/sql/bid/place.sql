-- Read a lock's row and who is first in its queue and, with "wait", take a place in the queue. Having to wait for
-- another holder is counted.
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
select l.node, l.token, l.seq, l.lease_seconds, leasehold.timeline(), ({{bid/_first}}),
       (select i.settled from leasehold.incarnation i)
from leasehold.leader l join leasehold.fence f using (name) where l.name = %(name)s
