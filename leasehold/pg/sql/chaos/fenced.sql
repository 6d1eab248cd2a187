-- Is this term the newest? The fence stays locked until the leader's transaction ends, so that
-- nobody can acquire before that.
-- locks: fence FOR SHARE
-- index: fence_pkey
select 1 from leasehold.fence where name = %(name)s and token = %(term)s for share
