-- Is any job of the measurement unfinished?
-- locks: none
-- index: a scan of job that ends at its first row
select exists (select from leasework.job)
