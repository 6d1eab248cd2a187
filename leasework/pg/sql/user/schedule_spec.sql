-- The spec of a schedule, as the user's transaction sees it. It casts by way of text: see enqueue.
-- locks: none
-- index: schedule_pkey
select spec::text from leasework.schedule
where app = (cast(cast(%(app)s as text) as jsonb) #>> '{}') and name = (cast(cast(%(name)s as text) as jsonb) #>> '{}')
