"""Syncs customers with an external API that allows one client at a time.

The lock is keyed on the API's endpoint and not on this job, so other code that calls the API can
take the same lock. Here the API is a file. It records its callers and refuses a token that is lower
than the last one.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from pathlib import Path

from leasework import App
from leasework.errors import LockNotAcquired, LostLease

API = Path(os.environ.get("API_FILE", "api.log"))
ENDPOINT = "https://api.example.com/v1/customers"
SECONDS = float(os.environ.get("SYNC_SECONDS", "1"))
WAIT_SECONDS = float(os.environ.get("WAIT_SECONDS", "30"))

app = App(os.environ.get("LEASEWORK_DSN", "embedded"))


def call_api(token: int, what: str) -> None:
    """The external system. It writes one line for each call, and knows only the token."""
    with API.open("a+") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.seek(0)
        lines = log.read().splitlines()
        newest = int(lines[-1].split()[0]) if lines else 0
        if token < newest:
            raise PermissionError(f"token {token} is older than {newest}")
        log.write(f"{token} {os.getpid()} {what}\n")


async def sync() -> int:
    try:
        async with app.lock(f"api:{ENDPOINT}", timeout=WAIT_SECONDS) as lock:
            print(f"sync: begins, token {lock.token}", flush=True)
            call_api(lock.token, "begin")
            await asyncio.sleep(SECONDS)  # a page after the other
            call_api(lock.token, "end")
            print("sync: done", flush=True)
            return 0
    except LockNotAcquired:
        print("sync: another one is at it, and takes long; next time", flush=True)
        return 0
    except LostLease:
        print("sync: the lock was lost; what was sent since is refused by its token", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(sync()))
