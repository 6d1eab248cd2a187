-- The source of the next tokens, the highest tokens so far, and whether a sequence is behind its rows. No row: it was
-- deleted.
-- locks: none
-- index: event_pkey; a scan of incarnation, node and attempt
select i.seen, i.added, leasehold.server_timeline(),
       (select s.last_value + s.is_called::integer from leasehold.token_seq s),
       greatest((select max(n.token) from leasehold.node n), (select max(a.claim_token) from leasehold.attempt a)),
       case when has_sequence_privilege('leasehold.event_id_seq', 'select') then
           coalesce((select max(e.id) from leasehold.event e)
                    > coalesce(pg_sequence_last_value('leasehold.event_id_seq'), 0), false) else false end
from leasehold.incarnation i
