-- How many duties each earlier term has committed so far.
-- locks: none
-- index: a scan of chaos_duty
select term, count(*) from leasework.chaos_duty where term < %(term)s group by term
