"""Imported well by the tests, and fails to import in a child process."""

import os

if "BREAK_THE_IMPORT" in os.environ:
    raise ImportError("this module does not want to")


def handler() -> None:
    return None
