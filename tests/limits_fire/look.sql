-- All that watch.py looks at, in one snapshot. The parameter: the last claim that it has seen.
select json_build_array(
  extract(epoch from clock_timestamp()),
  (select json_agg(json_build_array(id, queue, lane, priority * 2 + fresh::integer, seat, costs, node, task_name,
                                    extract(epoch from claimed_at)) order by priority * 2 + fresh::integer, seat)
   from leasework.job where node is not null or held_because = 'limit'),
  (select json_agg(json_build_array(id, pid, extract(epoch from started_at), queues)) from leasework.node),
  (select json_agg(json_build_array(name, case when paused then 0 else coalesce(set_concurrency, concurrency) end,
                                    coalesce(set_rate, rate), coalesce(set_burst, burst))) from leasework.limits),
  (select json_agg(json_build_array(key, set_concurrency, paused, extract(epoch from closed_until)))
   from leasework.limit_key),
  (select json_agg(json_build_array(kind, name)) from leasework.pause),
  (select json_agg(json_build_array(n, lane, costs, extract(epoch from claimed_at)) order by n)
   from fire.event where kind = 'claim' and n > %s))
