-- Workers of another measurement that renewed their lease lately: its schema must not be dropped.
-- locks: none
-- index: a scan of node
select worker_id from leasework.nodes
where age < make_interval(secs => lease_seconds) order by worker_id limit 10
