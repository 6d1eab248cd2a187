"""What ``from leasework.testing import …`` offers. It is loaded with the first of these names."""

from leasework.testing.asserting import assert_enqueued as assert_enqueued
from leasework.testing.contexts import (
    FakeContext as FakeContext,
    FakeSyncContext as FakeSyncContext,
    context as context,
    sync_context as sync_context,
)
from leasework.testing.databases import (
    RivalSession as RivalSession,
    clear as clear,
    open_rival_session as open_rival_session,
    postgres_dsn as postgres_dsn,
)
from leasework.testing.running import drain as drain, next_runs as next_runs
