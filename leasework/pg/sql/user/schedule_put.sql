-- Make or replace a schedule in the user's transaction. It casts by way of text: see enqueue.
-- locks: schedule row
-- index: schedule_pkey
select leasework.schedule_put((cast(cast(%(app)s as text) as jsonb) #>> '{}'), cast(cast(%(definition)s as text) as jsonb))
