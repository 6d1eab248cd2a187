-- The newest events.
-- locks: none
-- index: event_pkey (in order)
select id, at, kind, level, worker_id, fields from leasework.events
where (%(kind)s::text is null or kind = %(kind)s) and (%(after)s::bigint is null or id > %(after)s)
order by id desc limit %(limit)s
