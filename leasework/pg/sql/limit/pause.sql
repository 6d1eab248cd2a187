-- Pause a queue or a task, or resume it. Workers hear of it with their next renewal, which the notification brings
-- forward. Returns whether that changed anything.
-- locks: the row of pause
-- index: pause_pkey
with begun as (
    insert into leasework.pause (kind, name, since, why)
    select %(kind)s, %(name)s, coalesce(%(now)s::timestamptz, now()), %(why)s where %(paused)s
    on conflict do nothing
    returning name
), ended as (
    delete from leasework.pause where kind = %(kind)s and name = %(name)s and not %(paused)s
    returning name
)
select exists (select 1 from begun union all select 1 from ended), leasework.notify('e:')
