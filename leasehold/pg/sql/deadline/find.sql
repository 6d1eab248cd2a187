-- The deadline of that name which stands alone: the armed one, or the newest.
-- locks: none
-- index: deadline_name, deadline_moment
select d.id from leasehold.deadline d
where d.name = %(name)s and not d.of_job and (d.state = 'armed' or d.level = 1)
order by d.state = 'armed' desc, d.made_at desc
limit 1
