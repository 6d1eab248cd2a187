"""Which path shows which page."""

from __future__ import annotations

from leasehold.web import acts, jobs, leaders, overview, rest, schedules
from leasehold.web.site import Page


def routes() -> list[tuple[str, Page, bool]]:
    """(path, page, True for a form that is posted)"""
    return [
        ("/", overview.home, False),
        ("/now", overview.now, False),
        ("/live", overview.live, False),
        ("/jobs", jobs.listing, False),
        ("/jobs/suggest", jobs.suggest, False),
        ("/jobs/bulk", jobs.preview, False),
        ("/jobs/bulk", acts.bulk, True),
        ("/jobs/{job}", jobs.one, False),
        ("/jobs/{job}/act", acts.on_job, True),
        ("/schedules", schedules.listing, False),
        ("/schedules/act", acts.on_schedule, True),
        ("/leaders", leaders.listing, False),
        ("/nodes", rest.nodes, False),
        ("/nodes/act", acts.on_node, True),
        ("/locks", rest.locks, False),
        ("/deadlines", rest.deadlines, False),
        ("/database", rest.database, False),
        ("/events", rest.events, False),
        ("/login", acts.ask_login, False),
        ("/login", acts.login, True),
        ("/logout", acts.logout, True),
    ]
