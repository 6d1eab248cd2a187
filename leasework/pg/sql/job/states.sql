-- How many jobs of a queue and a task (null: of any) are in each state that is not ready, among the first "most" that
-- wait, the newest "most" of each bad state, and the newest twice as many that finished: (part, state, these, all).
-- locks: none
-- index: job_waiting (in order), job_done_pkey (in order), job_done_bad
select part, state, count(*) filter (where queue = coalesce(%(queue)s::text, queue)
                                       and task_name = coalesce(%(task)s::text, task_name)), count(*)
from ((select 'waiting' as part, {{job/_state}} as state, queue, task_name from leasework.job j
       where not ready and held_because is distinct from 'limit' order by run_at limit %(most)s)
      union all
      (select 'finished', state, queue, task_name from leasework.job_done order by id desc limit 2 * %(most)s)
      union all
      select 'bad', d.* from unnest('{cancelled,discarded,quarantined}'::text[]) s (state) cross join lateral (
          select state, queue, task_name from leasework.job_done
          where state <> 'completed' and state = s.state order by id desc limit %(most)s) d) looked
group by 1, 2
