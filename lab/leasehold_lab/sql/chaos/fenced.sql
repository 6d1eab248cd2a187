-- Is this term the newest? The fence stays locked until the leader's transaction ends, so that
-- nobody can acquire before that. As the user's verify does, the statement that locks it bounds the
-- transaction's idle time: a leader that is cut off must not keep everybody waiting.
-- locks: fence FOR SHARE
-- index: fence_pkey
select set_config('idle_in_transaction_session_timeout', '2s', true)
from leasehold.fence where name = %(name)s and token = %(term)s for share
