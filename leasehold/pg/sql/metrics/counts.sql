-- Every count: its total plus its tallies, and the failed renewals that live nodes report.
-- locks: none
-- index: a scan of total, tally and node
select metric, subject, part, sum(n)::bigint from (
    select metric, subject, part, n from leasehold.total
    union all
    select metric, subject, part, n from leasehold.tally
    union all
    select 'renew_failed', app, '', case when jsonb_typeof(info -> 'renew_failed') = 'number'
                                         then (info ->> 'renew_failed')::bigint else 0 end from leasehold.node
) c group by 1, 2, 3 order by 1, 2, 3 limit %(limit)s
