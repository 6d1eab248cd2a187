-- The minutes from "since", the oldest first. If there are more rows than "limit", the newest.
-- locks: none
-- index: history_pkey
select * from (
    select at, queue, task_name, completed, cancelled, discarded, quarantined, failed, wait, run
    from leasework.history
    where at >= %(since)s and (%(queue)s::text is null or queue = %(queue)s)
    order by at desc, queue desc, task_name desc limit %(limit)s) newest
order by at, queue, task_name
