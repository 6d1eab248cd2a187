-- The final read: the ledger of ticks.
-- locks: none
-- index: tick_pkey
select schedule, fire_at, coalesce(until, fire_at), state, job_id, app
from leasework.tick
order by app, schedule, fire_at
