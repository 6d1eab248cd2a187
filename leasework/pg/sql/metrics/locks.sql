-- Locks: how many are held, how many processes wait, and how long the first of these has waited; then the same of this
-- database's advisory locks.
-- locks: none
-- index: a scan of leader and bid
select (select count(*) from leasework.leader where node is not null and starts_with(name, 'lock:')),
       (select count(*) from leasework.bid),
       (select coalesce(greatest(extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - min(made_at)),
                                 0), 0)::float8 from leasework.bid),
       count(*) filter (where granted), count(*) filter (where not granted),
       coalesce(greatest(extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - min(waitstart)), 0),
                0)::float8
from pg_locks
where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
