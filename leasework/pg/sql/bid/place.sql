-- Read a lock's row and who is first in its queue and, with "wait", take a place in the queue. Having to wait for
-- another holder is counted.
-- locks: own node row FOR KEY SHARE, by the foreign key
-- index: leader_pkey, fence_pkey, node_pkey, bid_pkey, bid_order; a scan of incarnation
with placed as (
    insert into leasework.bid (name, node)
    select %(name)s, n.id from leasework.node n where n.id = %(node)s and %(wait)s
    on conflict (name, node) do nothing
    returning name
), contended as (
    insert into leasework.tally (metric, subject, n)
    select 'lock_contended', '', 1 from placed join leasework.leader l using (name) where l.node is not null
)
select l.node, l.token, l.seq, l.lease_seconds, leasework.timeline(), ({{bid/_first}}),
       (select i.settled from leasework.incarnation i)
from leasework.leader l join leasework.fence f using (name) where l.name = %(name)s
