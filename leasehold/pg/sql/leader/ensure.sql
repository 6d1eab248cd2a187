-- Make the rows of an election. Rows deleted by hand are made again above every token that is
-- known of, so that none comes back. A leader's row is made again as its last holder's, who may
-- still believe in it: it goes on if it does, and others wait, as for every silent holder. Its seq
-- was never seen before: whoever saw the old row takes this one for another.
-- locks: inserts only
-- index: leader_pkey, fence_pkey, term_pkey; a scan of node
with last as (
    select token, node from leasehold.term where name = %(name)s order by token desc limit 1
), highest as (
    select greatest(coalesce((select token from last), 0),
                    coalesce((select token from leasehold.fence where name = %(name)s), 0),
                    coalesce((select token from leasehold.leader where name = %(name)s), 0)) as token
), f as (
    insert into leasehold.fence (name, token) select %(name)s, token from highest
    on conflict (name) do nothing returning token
), l as (
    insert into leasehold.leader (name, node, token, seq, lease_seconds)
    select %(name)s, coalesce((select node from last), '00000000-0000-0000-0000-000000000000'), token,
           ('x' || left(md5(gen_random_uuid()::text), 15))::bit(60)::bigint,
           greatest(%(lease_seconds)s, (select max(lease_seconds) from leasehold.node))
    from highest where token > 0
    union all
    select %(name)s, null, 0, 0, %(lease_seconds)s from highest where token = 0
    on conflict (name) do nothing returning token
)
select token > 0 and (exists (select 1 from f) or exists (select 1 from l)) from highest
