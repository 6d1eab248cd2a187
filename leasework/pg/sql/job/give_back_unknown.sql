-- Give back rows of this node that it does not know, from a claim whose answer was lost. Only after the epoch was
-- raised, and only in that epoch: later it would take newer claims, which run. Known claims are named by token, because
-- a job that was taken away while it hung here may be the one that we claimed again. A job whose cancel was requested
-- ends here.
-- edge: running -> available
-- edge: running -> cancelled
-- token: none, because no process ever got the claim_token of these rows
-- locks: own node row FOR KEY SHARE (the next epoch waits for us), job rows, then unique keys
-- index: claimed_to_pkey, job_ready (each level as far as the node has claimed), job_pkey, job_key_pkey, node_pkey
with mine as materialized (
    select id from leasework.node where id = %(node)s and epoch = %(epoch)s for key share
), freed as materialized (
    select j.id, case when j.cancel_requested then 'cancelled' end as over, null::timestamptz as began, null as why,
           'its worker gave it back' as error, 1 as undone, 0 as crashed
    from mine join leasework.claimed_to c on c.node = mine.id
    cross join lateral (
        select j.id, j.cancel_requested from leasework.job j
        where j.ready and j.queue = c.queue and leasework.level(j.priority, j.fresh) = c.level and j.seat <= c.seat
          and j.node = c.node and j.claim_token <> all (%(known)s::bigint[])
        for update of j
    ) j
), {{job/_back}}
select f.id from freed f, woken
