-- Every count: its total plus its tallies, and the failed renewals that live nodes report. Of each metric at most "limit".
-- locks: none
-- index: a scan of total, tally and node
select metric, subject, part, n from (
  select metric, subject, part, sum(n)::bigint as n, row_number() over (partition by metric order by subject, part) as place
  from (
    select metric, subject, part, n from leasework.total
    union all
    select metric, subject, part, n from leasework.tally
    union all
    select 'renew_failed', app, '', case when jsonb_typeof(info -> 'renew_failed') = 'number'
                                         then (info ->> 'renew_failed')::bigint else 0 end from leasework.node
  ) c group by 1, 2, 3) x
where place <= %(limit)s
order by 1, 2, 3
