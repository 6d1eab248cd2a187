-- Make or replace a schedule at run time. False: the code defines one of that name, which stays.
-- locks: schedule row
-- index: schedule_pkey
select leasework.schedule_put(%(app)s, %(definition)s::jsonb, %(now)s::timestamptz)
