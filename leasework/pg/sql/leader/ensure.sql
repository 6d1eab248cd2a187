-- Create the rows of an election. Rows deleted by hand are created again, above every known token, so that no token is
-- given twice. The leader's row then names its last holder, which may still believe in its term: it continues if so,
-- and the others wait as for any silent holder. Its seq is random, so that those who saw the old row recognize a new
-- one.
-- locks: inserts only
-- index: leader_pkey, fence_pkey, term_pkey; a scan of node
with last as (
    select token, node from leasework.term where name = %(name)s order by token desc limit 1
), highest as (
    select greatest(coalesce((select token from last), 0),
                    coalesce((select token from leasework.fence where name = %(name)s), 0),
                    coalesce((select token from leasework.leader where name = %(name)s), 0)) as token
), f as (
    insert into leasework.fence (name, token) select %(name)s, token from highest
    on conflict (name) do nothing returning token
), l as (
    insert into leasework.leader (name, node, token, seq, lease_seconds)
    select %(name)s, coalesce((select node from last), '00000000-0000-0000-0000-000000000000'), token,
           ('x' || left(md5(gen_random_uuid()::text), 15))::bit(60)::bigint,
           greatest(%(lease_seconds)s, (select max(lease_seconds) from leasework.node))
    from highest where token > 0
    union all
    select %(name)s, null, 0, 0, %(lease_seconds)s from highest where token = 0
    on conflict (name) do nothing returning token
)
select token > 0 and (exists (select 1 from f) or exists (select 1 from l)) from highest
