"""Three cells under load, one of whose servers is killed: the others do not notice.

``python -m tests.cells --seconds 60`` starts three PostgreSQL servers with a worker each, a worker
of all three, and a process that enqueues at a steady rate. In the middle third, one server is away.
"""
