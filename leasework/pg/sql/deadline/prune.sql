-- Delete deadlines that ended long enough ago.
-- locks: the rows
-- index: deadline_closed, deadline_pkey
with old as (
    select d.id from leasework.deadline d
    where d.closed_at < coalesce(%(now)s::timestamptz, now()) - make_interval(days => %(days)s)
    order by d.closed_at
    limit %(limit)s
), gone as (
    delete from leasework.deadline d using old where d.id = old.id returning 1
)
select count(*) from gone
