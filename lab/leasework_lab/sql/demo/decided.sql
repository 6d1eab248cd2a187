-- The first and the last moment of a schedule that the ledger decided.
-- locks: none
-- index: tick_pkey
select min(fire_at), max(coalesce(until, fire_at)) from leasework.tick
where app = %(app)s and schedule = %(schedule)s
