"""The rehearsal of an upgrade: this version, and a next one with a migration, under load.

``python -m tests.upgrade --seconds 600`` plays both orders, the schema first and the code first,
and each of them back. ``--broken NAME`` has a next version that no minor version may be; the
rehearsal must report it. ``--list`` lists them.
"""
