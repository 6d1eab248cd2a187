-- The server's timeline, the token of the next claim (null: the row of the incarnation was deleted), the highest token
-- so far, and whether a sequence is behind its rows.
-- locks: none
-- index: event_pkey; a scan of incarnation, node and attempt
select t.ours,
       (i.added + case when coalesce(t.ours, 1) < i.seen then i.seen else 0 end + coalesce(t.ours, 1) - 1 << 32)
           + (select s.last_value + s.is_called::integer from leasework.token_seq s),
       greatest((select max(n.token) from leasework.node n), (select max(a.claim_token) from leasework.attempt a)),
       case when has_sequence_privilege('leasework.event_id_seq', 'select') then
           coalesce((select max(e.id) from leasework.event e)
                    > coalesce(pg_sequence_last_value('leasework.event_id_seq'), 0), false) else false end
from (select leasework.server_timeline() as ours) t left join leasework.incarnation i on true
