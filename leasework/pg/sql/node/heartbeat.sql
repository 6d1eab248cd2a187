-- Renew the node and its leaderships, and read the other nodes and leaders: one statement per interval. Leaderships are
-- renewed only with the node; one that is not in the answer was not renewed. An election without its fence row is not
-- shown, and is then created again. The server's timeline is recorded when it changes, or is no longer reported. The last
-- column: leasework.notify sends nothing.
-- locks: own node row, then own leader rows; the row of incarnation, where the timeline changed
-- index: node_pkey, leader_pkey, fence_pkey, signal_pkey; a scan of node, leader, release, pause and incarnation
with me as (
    update leasework.node
    set seq = seq + 1, renewed_at = coalesce(%(now)s::timestamptz, clock_timestamp()), info = %(info)s
    where id = %(node)s and token = %(token)s
    returning halted
), led as (
    update leasework.leader l
    set seq = l.seq + 1, renewed = l.renewed + 1, renewed_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    from unnest(%(held_leader)s::text[], %(held_token)s::bigint[]) as h (name, term)
    where l.name = h.name and l.node = %(node)s and l.token = h.term and exists (select 1 from me)
    returning l.name
), handled as (
    select * from unnest(%(heard_job)s::uuid[], %(heard_token)s::bigint[], %(heard_kind)s::text[]) h (job_id, claim_token, kind)
), heard as (
    delete from leasework.signal s using handled h
    where s.node = %(node)s and (s.job_id, s.claim_token, s.kind) = (h.job_id, h.claim_token, h.kind)
)
select exists (select 1 from me),
       array(select name from led),
       (select coalesce(json_agg(json_build_array(l.name, l.node, l.token, l.seq, l.lease_seconds)), '[]')
        from leasework.leader l join leasework.fence f using (name) where l.name = any (%(watched)s::text[])),
       (select json_build_array(coalesce(json_agg(n.id), '[]'), coalesce(json_agg(n.token), '[]'),
                                coalesce(json_agg(n.seq), '[]'), coalesce(json_agg(n.lease_seconds), '[]'),
                                coalesce(json_agg(n.app), '[]'), coalesce(json_agg(case when n.defines then r.number else 0 end), '[]'))
        from leasework.node n left join leasework.release r on r.app = n.app and r.name = n.release),
       (select coalesce(json_agg(json_build_array(s.job_id, s.claim_token, s.kind)), '[]')
        from leasework.signal s
        where s.node = %(node)s and (s.job_id, s.claim_token, s.kind) not in (select job_id, claim_token, kind from handled)),
       leasework.note_timeline(%(settles)s), coalesce(%(now)s::timestamptz, clock_timestamp()),
       coalesce((select halted from me), false), coalesce((select i.settled from leasework.incarnation i), 0),
       pg_notification_queue_usage() >= 0.5,
       (select coalesce(json_agg(json_build_array(p.kind, p.name)), '[]') from leasework.pause p)
