-- How many jobs of each queue wait for limits or for their tenant's share, counted up to "most", and for how long the
-- first of these has been due.
-- locks: none
-- index: job_lane (all of it)
select w.queue, count(*), extract(epoch from coalesce(%(now)s::timestamptz, now()) - min(w.run_at))::float8
from (select j.queue, j.run_at from leasework.job j where j.held_because = 'limit' limit %(most)s) w
group by 1 order by 1
