-- Where the events of this campaign begin.
-- locks: none
-- index: event_pkey
select coalesce(max(id), 0) from leasehold.event
