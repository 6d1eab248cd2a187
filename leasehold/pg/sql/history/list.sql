-- The minutes from "since", the oldest first.
-- locks: none
-- index: history_pkey
select at, queue, task_name, completed, cancelled, discarded, quarantined, failed, wait, run
from leasehold.history
where at >= %(since)s and (%(queue)s::text is null or queue = %(queue)s)
order by at, queue, task_name limit %(limit)s
