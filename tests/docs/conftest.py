"""Provides a server with the schema, as the readers of the pages have one."""

from __future__ import annotations

import os

# leases that expire in real time take too long for every run: make workshop
collect_ignore = [] if os.environ.get("LEASEWORK_LONG") else ["test_workshop.py"]
