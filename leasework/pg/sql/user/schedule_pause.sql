-- Pause a schedule, or resume it, in the user's transaction. It casts by way of text: see enqueue.
-- locks: schedule row
-- index: schedule_pkey
update leasework.schedule s
set paused = p.yes, paused_at = case when p.yes and not s.paused then p.at else s.paused_at end,
    resumed_at = case when s.paused and not p.yes then p.at else s.resumed_at end
from (select cast(%(paused)s as boolean) as yes,
             coalesce(cast(%(now)s as timestamptz), clock_timestamp()) as at) p
where app = (cast(cast(%(app)s as text) as jsonb) #>> '{}') and name = (cast(cast(%(name)s as text) as jsonb) #>> '{}')
returning name
