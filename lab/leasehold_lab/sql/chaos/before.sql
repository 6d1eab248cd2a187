-- How many duties of each term before this one are committed now.
-- locks: none
-- index: a scan of chaos_duty
select term, count(*) from leasehold.chaos_duty where term < %(term)s group by term
