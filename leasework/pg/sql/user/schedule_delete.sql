-- Delete a schedule in the user's transaction. It casts by way of text: see enqueue.
-- locks: schedule row
-- index: schedule_pkey
delete from leasework.schedule
where app = (cast(cast(%(app)s as text) as jsonb) #>> '{}') and name = (cast(cast(%(name)s as text) as jsonb) #>> '{}')
  and not in_code
returning name
