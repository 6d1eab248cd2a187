-- In the user's transaction, the deadline without a job of that name: the armed one, or the newest.
-- locks: none
-- index: deadline_name, deadline_moment
select d.id from (
    select id, made_at, true as armed from leasework.deadline
    where name = (cast(cast(%(name)s as text) as jsonb) #>> '{}') and not of_job and state = 'armed'
    union all
    select id, made_at, false from leasework.deadline
    where name = (cast(cast(%(name)s as text) as jsonb) #>> '{}') and not of_job
) d
order by d.armed desc, d.made_at desc
limit 1
