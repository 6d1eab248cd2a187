-- Resign a leadership, after its duties have stopped, and notify the candidates; or release a lock, and notify only the
-- first process that waits for it, if any.
-- locks: leader row
-- index: leader_pkey, node_pkey, bid_order
with gone as (
    update leasework.leader set node = null, seq = seq + 1, resigned = resigned + 1
    where name = %(term_leader)s and (node = %(node)s) is true and token = %(term_token)s -- by its name, not by its node
    returning name, token, seq
)
select case when not starts_with(l.name, 'lock:') then leasework.notify('e:' || l.name)
            when next.node is not null
            then leasework.notify(format('l:%%s %%s %%s %%s', next.node, l.token, l.seq, l.name)) end
from gone l left join lateral ({{bid/_first}}) next on true
