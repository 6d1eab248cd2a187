"""A local PostgreSQL for the demo, development and tests, started by leasework and shared.

The server's programs come with leasework's extra `embedded`. The server listens only on a
unix socket, in a folder that only this account (and root) can enter.
"""

from leasework.embedded.binaries import Binaries, find_binaries
from leasework.embedded.server import EmbeddedServer

__all__ = ["Binaries", "EmbeddedServer", "find_binaries"]
