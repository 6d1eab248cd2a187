-- End sessions of leasework that keep the row of a node, a leader or a fence locked while they wait for their process to
-- read an answer: it is frozen, cut off or powered off. No time limit of the server ends such a wait. A worker that froze
-- during a claim could not be declared dead, and a leader that froze during a duty could not be replaced. Sessions of
-- other roles are hidden from us, and stay. The statement must have begun longer ago than any lease lasts, and at least
-- so many seconds.
-- locks: none
-- index: a scan of node
select count(*) filter (where pg_terminate_backend(a.pid)) from pg_stat_activity a
where a.datname = current_database() and a.usename = current_user and starts_with(a.application_name, 'leasework ')
  and a.wait_event = 'ClientWrite'
  and a.query_start < coalesce(%(now)s::timestamptz, clock_timestamp()) - interval '1 second'
                      * greatest(%(seconds)s, (select max(n.lease_seconds) from leasework.node n))
  and exists (select 1 from pg_locks l where l.pid = a.pid and l.mode in ('RowShareLock', 'RowExclusiveLock')
              and l.relation in ('leasework.node'::regclass, 'leasework.fence'::regclass, 'leasework.leader'::regclass))
