-- The source of the next tokens, and the highest tokens so far. No row: it was deleted.
-- locks: none
-- index: a scan of incarnation, node and attempt
select i.seen, i.added, leasehold.server_timeline(),
       (select s.last_value + s.is_called::integer from leasehold.token_seq s),
       greatest((select max(n.token) from leasehold.node n), (select max(a.claim_token) from leasehold.attempt a))
from leasehold.incarnation i
