-- Each leader with counts of its terms. leaderless includes the current vacancy. A row that was deleted by hand and
-- created again names a node but was never renewed: it is not held.
-- locks: none
-- index: a scan of leader
select name, coalesce(node is not null and age < lease_seconds, false), token, greatest(age, 0), acquired, renewed, resigned, expired,
       leaderless_seconds + coalesce(case when node is null then greatest(extract(epoch from at - vacated_at), 0)
                                          else greatest(age - lease_seconds, 0) end, 0)::float8
from (
    select l.*, c.at, extract(epoch from c.at - l.renewed_at)::float8 as age
    from leasework.leader l, (select coalesce(%(now)s::timestamptz, clock_timestamp()) as at) c
    where not starts_with(l.name, 'lock:')) x
order by name limit %(limit)s
