-- In the user's transaction, the deadline without a job of that name: the armed one, or the newest.
-- locks: none
-- index: deadline_moment
select id from leasework.deadline where name = (cast(cast(%(name)s as text) as jsonb) #>> '{}') and not of_job
order by state = 'armed' desc, made_at desc limit 1
