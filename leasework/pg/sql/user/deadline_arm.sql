-- Arm a deadline without a job in the user's transaction. It casts by way of text: see enqueue.
-- locks: inserts only; waits for another insert of the same name
-- index: deadline_name, deadline_moment, deadline_pkey
select id, created
from leasework.deadline_arm(cast(%(id)s as uuid), (cast(cast(%(name)s as text) as jsonb) #>> '{}'), cast(cast(%(promise)s as text) as jsonb))
