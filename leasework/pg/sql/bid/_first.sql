-- Part of the statements that tell who is first in the queue of the lock `l`. A process that has not renewed its lease
-- lately is passed over: where only scripts use locks, nobody declares it dead. The order is a courtesy, so the wall
-- clock may decide.
-- index: node_pkey, bid_order
select b.node from leasework.bid b join leasework.node n on n.id = b.node
where b.name = l.name
  and n.renewed_at > coalesce(%(now)s::timestamptz, clock_timestamp()) - 2 * n.lease_seconds * interval '1 second'
order by b.ticket limit 1
