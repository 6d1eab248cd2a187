-- Nodes that died recently and that no person has seen yet, the newest first, with the number of their jobs rescued
-- within a minute.
-- locks: none
-- index: death_unseen (in order), attempt_ended (in order)
select d.node, d.worker_id, d.app, d.died_at,
       (select count(*) from (
           select a.node, a.outcome from leasework.attempt a
           where a.ended_at >= d.died_at and a.ended_at < d.died_at + interval '1 minute'
           order by a.ended_at limit 5000) a
        where a.node = d.node and a.outcome = 'crashed')
from leasework.death d
where d.how = 'died' and d.seen_at is null
  and d.died_at > coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(seconds)s)
order by d.died_at desc, d.node limit %(limit)s
