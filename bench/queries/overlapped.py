"""The reference's table, with another index."""

from bench.queries.raw import *  # noqa: F403
