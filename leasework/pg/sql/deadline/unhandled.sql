-- Recent breaches whose callback did not work: its job waits for a task that no live node knows, or was discarded or
-- quarantined. Whoever cancelled it, a person or its handler, knows of it.
-- locks: none
-- index: deadline_breached, job_pkey, job_done_pkey; a scan of node
select d.id, d.name, d.callback ->> 'task', d.callback_job,
       case when j.id is not null then 'unknown' else o.state end
from (select * from leasework.deadline
      where state = 'breached' and closed_at > coalesce(%(now)s::timestamptz, now()) - make_interval(days => %(days)s)
      order by closed_at desc
      limit 10000) d
left join lateral (
    select w.id from leasework.job w where w.id = d.callback_job and w.node is null and not exists (
        select 1 from leasework.node n where n.executes and leasework.needs(w.task_name, w.version) = any (n.tasks))
    limit 1) j on true
left join lateral (
    select f.state from leasework.job_done f where f.id = d.callback_job and f.state in ('discarded', 'quarantined')
    order by f.finished_at desc limit 1) o on true
where j.id is not null or o.state is not null
order by d.closed_at desc
limit %(limit)s
