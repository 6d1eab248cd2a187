"""The work itself, the same for both services: it costs CPU time here and money elsewhere."""

import hashlib
import json
import os
import time
from datetime import datetime

COST_WON = 120
"""What one run costs, in calls of a model."""


def analyse(due: datetime) -> None:
    """One run for the moment ``due``, recorded as a line of JSON in the file ``ANALYSIS_LOG``."""
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
