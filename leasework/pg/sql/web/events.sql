-- Events by kind and level, the newest first. Reads at most "scan" events.
-- locks: none
-- index: event_pkey (in order)
with looked as materialized (
    select e.id, e.at, e.kind, e.level, e.worker_id, e.fields,
           (%(kind)s::text is null or e.kind = %(kind)s) and (%(level)s::text is null or e.level = %(level)s)
           and (%(worker)s::text is null or e.worker_id = %(worker)s) as ok
    from leasework.events e
    where %(before)s::bigint is null or e.id < %(before)s
    order by e.id desc limit %(scan)s
)
select (select count(*) from looked), (select min(id) from looked), f.*
from (select 1) one left join (
    select id, at, kind, level, worker_id, fields from looked where ok order by id desc limit %(limit)s) f on true
order by f.id desc
