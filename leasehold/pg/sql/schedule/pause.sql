-- Pause a schedule, or let it go on: the moments in between are decided by its missed policy.
-- locks: schedule row
-- index: schedule_pkey
update leasehold.schedule set paused = %(paused)s where app = %(app)s and name = %(name)s returning name
