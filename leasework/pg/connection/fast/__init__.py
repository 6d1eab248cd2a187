"""Only for speed: short statements take less than half of the client's CPU (ADR 20).

Each part does what psycopg does, and has a plain way beside it:

| module | plain way |
|---|---|
| ``link``: the event loop watches the socket all the time | psycopg's ``AsyncConnection.wait`` |
| ``Link.send``: a statement without a cursor | ``Session.fetch``: psycopg's cursor |
| ``copying``: rows as COPY's text | psycopg's ``Copy.write_row`` |

``Link.plain`` selects the plain way of the first two. ``tests/contract`` runs on both ways.
"""
