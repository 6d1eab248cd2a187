-- Give a leadership up, after its duties have stopped, and tell the candidates.
-- locks: leader row
-- index: leader_pkey
with gone as (
    update leasehold.leader set node = null, seq = seq + 1
    where name = %(name)s and node = %(node)s and token = %(token)s
    returning name
)
select pg_notify('leasehold', 'e:' || name) from gone
