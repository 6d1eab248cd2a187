-- The deadline of that name which stands alone, in a transaction of the user's: the armed one, or
-- the newest.
-- locks: none
-- index: deadline_moment
select d.id from leasehold.deadline d
where d.name = cast(%(name)s as text) and not d.of_job
order by d.state = 'armed' desc, d.made_at desc
limit 1
