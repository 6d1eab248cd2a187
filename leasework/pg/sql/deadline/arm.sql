-- Arm a deadline without a job: see the function in the migrations.
-- locks: inserts only; waits for another insert of the same name
-- index: deadline_name, deadline_moment, deadline_pkey
select id, created from leasework.deadline_arm(%(deadline)s, %(name)s, %(promise)s::jsonb, %(now)s::timestamptz)
