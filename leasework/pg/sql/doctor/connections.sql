-- leasework's connections to this database, by purpose. A pooler's connections do not have our names.
-- locks: none
-- index: none
select a.application_name, count(*) from pg_stat_activity a
where a.datname = current_database() and starts_with(a.application_name, 'leasework ')
  and a.application_name <> 'leasework doctor'
group by 1 order by 1 limit 100
