-- Is this term the newest? The fence stays locked until the leader's transaction ends, so that nobody can acquire
-- before. Like the user's verify, the statement also limits the transaction's idle time: a leader that is cut off
-- must not make everybody wait.
-- locks: fence FOR SHARE
-- index: fence_pkey
select set_config('idle_in_transaction_session_timeout', '2s', true)
from leasework.fence where name = %(name)s and token = %(term)s for share
