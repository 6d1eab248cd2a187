-- Ask the worker processes of an application, or one of them, to drain and end, if they report that they can. The
-- signal's claim_token is 0 for all of them, 1 for one node.
-- locks: their signal rows
-- index: signal_pkey, node_pkey; a scan of node
with asked as (
    insert into leasework.signal (node, job_id, kind, claim_token)
    select id, id, 'drain', case when %(node)s::uuid is null then 0 else 1 end from leasework.node
    where info ->> 'drains' = 'true' and case when %(node)s::uuid is null then app = %(app)s else id = %(node)s end
    on conflict (node, job_id, kind) do update set claim_token = least(signal.claim_token, excluded.claim_token)
    returning node, leasework.notify('c:' || node)
)
select n.id, leasework.worker_id(n.host, n.pid, n.id)
from asked a join leasework.node n on n.id = a.node order by n.started_at, n.id
