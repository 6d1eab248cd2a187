"""An oracle for limits: workers that are killed and frozen, and a record that counts on its own.

``python -m tests.limits_fire --seconds 600`` attacks the sound build, ``--broken NAME`` one with a
protection taken out, which must be caught. ``--list`` lists them.
"""
