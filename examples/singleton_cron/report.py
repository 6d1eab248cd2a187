"""The nightly report. It must not run twice at the same time, and once a night is enough."""

from __future__ import annotations

import os
import sys
import time

SECONDS = float(os.environ.get("REPORT_SECONDS", "10"))

print(f"report: begins, token {os.environ['LEASEWORK_LOCK_TOKEN']}", flush=True)
ends_at = time.monotonic() + SECONDS
while time.monotonic() < ends_at:
    time.sleep(0.1)
print("report: done", flush=True)
sys.exit(int(os.environ.get("REPORT_STATUS", "0")))
