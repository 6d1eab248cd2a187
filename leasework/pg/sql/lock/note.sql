-- Record a key's name before its lock is taken, and return the recorded name. Returns nothing while another session is
-- recording it: ask again. Names unused for 30 days are deleted, a few at a time.
-- locks: the name's row, others FOR UPDATE SKIP LOCKED
-- index: lock_name_pkey, lock_name_used
with put as (
    insert into leasework.lock_name as n (kind, key, name, used_at)
    values (%(kind)s, %(key)s, %(name)s, coalesce(%(now)s::timestamptz, now()))
    on conflict (kind, key) do update set used_at = excluded.used_at
        where n.used_at < excluded.used_at - interval '1 day'
    returning n.name
), old as materialized (
    select n.ctid as at_row from leasework.lock_name n
    where n.used_at < coalesce(%(now)s::timestamptz, now()) - interval '30 days'
      and (n.kind, n.key) <> (%(kind)s, %(key)s::bigint)
    order by n.used_at
    limit 100
    for update skip locked
), gone as (
    delete from leasework.lock_name where ctid = any (array(select at_row from old))
)
select name from put
union all
select name from leasework.lock_name
where kind = %(kind)s and key = %(key)s and not exists (select 1 from put)
