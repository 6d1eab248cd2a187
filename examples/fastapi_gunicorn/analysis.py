"""The work that both services do. Here it costs CPU time, in production also money."""

import hashlib
import json
import os
import time
from datetime import datetime

COST_WON = 120
"""Cost of one run in won, for calls of a model."""


def analyse(due: datetime) -> None:
    """Run once for the moment ``due``, and record it as a line of JSON in ``ANALYSIS_LOG``."""
    before = time.thread_time()
    for user in range(20):
        hashlib.pbkdf2_hmac("sha256", b"profile", str(user).encode(), 5_000)
    run = {
        "due": due.isoformat(),
        "pid": os.getpid(),
        "cpu_seconds": time.thread_time() - before,
        "cost_won": COST_WON,
    }
    # one short write to a file opened for appending: lines of several processes do not mix
    log = os.open(
        os.environ.get("ANALYSIS_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT
    )
    os.write(log, json.dumps(run).encode() + b"\n")
    os.close(log)
