-- Recent events of these kinds, at most "limit" of each, so that many of one kind do not hide another; newest first.
-- locks: none
-- index: event_kind
select e.id, e.at, e.kind, e.level, e.worker_id, e.fields
from unnest(%(kinds)s::text[]) k (kind) cross join lateral (
    select * from leasework.events x
    where x.kind = k.kind and x.at > coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(seconds)s)
    order by x.at desc, x.id desc limit %(limit)s) e
order by e.at desc, e.id desc
