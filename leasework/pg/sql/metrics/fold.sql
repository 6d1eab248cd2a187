-- Add one bounded batch of tallies to their totals. The statement that adds a tally deletes it, so two leaders may do
-- this at once.
-- locks: the tallies, then the totals by primary key
-- index: tally_pkey (in order), total_pkey
with gone as (
    delete from leasework.tally where id in (
        select id from leasework.tally order by id limit %(limit)s for update skip locked)
    returning metric, subject, part, n
), summed as (
    select metric, subject, part, sum(n) as n from gone group by 1, 2, 3 order by 1, 2, 3
), added as (
    insert into leasework.total as t (metric, subject, part, n) select metric, subject, part, n from summed
    on conflict (metric, subject, part) do update set n = t.n + excluded.n
)
select count(*) from gone
