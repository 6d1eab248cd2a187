-- How often in the last day a renewal was too late, or the database was unavailable.
-- locks: none
-- index: event_at
select e.kind, count(*)
from (select kind from leasework.event
      where at > coalesce(%(now)s::timestamptz, now()) - interval '1 day'
        and kind in ('node_fenced', 'node_died', 'database_lost', 'listen_lost', 'clock_stepped', 'loop_stuck')
      limit 10000) e
group by e.kind
