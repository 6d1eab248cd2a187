-- Make the rows of an election. Rows deleted by hand are made again above every token that the
-- history of terms knows, so that none comes back.
-- locks: inserts only
-- index: leader_pkey, fence_pkey, term_pkey
with last as (
    select coalesce(max(token), 0) as token from leasehold.term where name = %(name)s
), highest as (
    select greatest(last.token,
                    coalesce((select token from leasehold.fence where name = %(name)s), 0),
                    coalesce((select token from leasehold.leader where name = %(name)s), 0)) as token,
           last.token > 0 as again
    from last
), f as (
    insert into leasehold.fence (name, token) select %(name)s, token from highest
    on conflict (name) do nothing returning token
), l as (
    insert into leasehold.leader (name, token, lease_seconds) select %(name)s, token, %(lease_seconds)s from highest
    on conflict (name) do nothing returning token
)
select again and (exists (select 1 from f) or exists (select 1 from l)) from highest
