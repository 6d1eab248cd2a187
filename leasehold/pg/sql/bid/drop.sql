-- Wait for a lock no more.
-- locks: own bid row
-- index: bid_pkey
delete from leasehold.bid where name = %(name)s and node = %(node)s returning ticket
