-- Stop waiting for a lock.
-- locks: own bid row
-- index: bid_pkey
delete from leasework.bid where name = %(name)s and node = %(node)s returning ticket
