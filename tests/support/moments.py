"""Moments that no test reaches, whenever and on whatever machine it runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

WEEK_SECONDS = 7 * 24 * 3600
HALF_A_WEEK_AWAY = datetime.now(UTC) + timedelta(seconds=WEEK_SECONDS / 2)
"""For ``every(seconds=WEEK_SECONDS, anchor=HALF_A_WEEK_AWAY)``: a schedule that fires in no test.
Counted from 1970, as without an anchor, its moments come at the start of a Thursday. The moments of
a shorter one come at the start of an hour or a day, in the middle of a test that runs then."""
