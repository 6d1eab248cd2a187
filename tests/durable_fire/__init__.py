"""An oracle for durable work: workers that are killed, frozen and cut off, jobs that are taken from
running handlers, and a record that counts on its own.

``python -m tests.durable_fire --seconds 600`` attacks the sound build, ``--broken NAME`` one with a
protection taken out, which must be caught. ``--list`` lists them. It shares its shape, its faults
and its record of claims with ``tests.limits_fire``.
"""
