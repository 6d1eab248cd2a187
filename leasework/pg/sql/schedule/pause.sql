-- Pause a schedule, or resume it: its missed policy decides the moments in between.
-- locks: schedule row
-- index: schedule_pkey
update leasework.schedule
set paused = %(paused)s,
    paused_at = case when %(paused)s and not paused then coalesce(%(now)s::timestamptz, now()) else paused_at end,
    resumed_at = case when paused and not %(paused)s then coalesce(%(now)s::timestamptz, now()) else resumed_at end
where app = %(app)s and name = %(name)s returning name
