-- The source of the next tokens, the highest tokens so far, and whether a sequence is behind its rows. No row: it was
-- deleted.
-- locks: none
-- index: event_pkey; a scan of incarnation, node and attempt
select i.seen, i.added, leasework.server_timeline(),
       (select s.last_value + s.is_called::integer from leasework.token_seq s),
       greatest((select max(n.token) from leasework.node n), (select max(a.claim_token) from leasework.attempt a)),
       case when has_sequence_privilege('leasework.event_id_seq', 'select') then
           coalesce((select max(e.id) from leasework.event e)
                    > coalesce(pg_sequence_last_value('leasework.event_id_seq'), 0), false) else false end
from leasework.incarnation i
