"""leasework's tables."""

from bench.queries.lease import *  # noqa: F403
