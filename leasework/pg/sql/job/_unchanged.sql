-- Part of the statements that people run on jobs: the other jobs than those of `changed`, if they are known. Scalar
-- subqueries, because EXISTS may read and hash all rows.
-- index: job_pkey, job_done_pkey
select * from (
    select a.id, coalesce((select 'locked' from leasework.job j where j.id = a.id),
                          (select 'finished' from leasework.job_done d where d.id = a.id limit 1)) as place
    from unnest(%(jobs)s::uuid[]) as a (id)
    where a.id <> all (array(select id from changed))) u
where place is not null
