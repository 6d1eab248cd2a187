-- Recent events of these kinds, at most "limit" of each, so that many of one kind do not hide another; newest first.
-- locks: none
-- index: event_at
select id, at, kind, level, worker_id, fields
from (select *, row_number() over (partition by kind order by at desc, id desc) as place from leasehold.events
      where at > coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(seconds)s) and kind = any (%(kinds)s)) e
where place <= %(limit)s
order by at desc, id desc
