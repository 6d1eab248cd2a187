"""The stack of a running handler, as text without the values of variables. The guard's thread takes
it, so that it also shows a handler that blocks its event loop.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from leasework.errors import storable
from leasework.jobs.running import Claim
from leasework.model.masking import masked_text

_DEEPEST = 200
_LINKS = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))


def stack_of(claim: Claim | None, loop_thread: int, most_chars: int) -> str:
    """Describe the stack, the newest call last. ``loop_thread`` is the ident of the thread that
    runs the user's event loop."""
    return limited(_say(claim, loop_thread), most_chars)


def limited(text: str, most_chars: int) -> str:
    """Mask secrets, make the text storable, and cut out its middle if it is too long."""
    text = masked_text(storable(text))
    if len(text) <= most_chars:
        return text
    half = (most_chars - 20) // 2
    return f"{text[:half]}\n  … cut …\n{text[-half:]}"


def _say(claim: Claim | None, loop_thread: int) -> str:
    if claim is None:
        return "It no longer runs here."
    if claim.started_at is None:
        return "It is claimed, and waits for a free slot."
    place = claim.place
    if isinstance(place, int):
        frame = sys._current_frames().get(place)
        return f"In a thread of its own:\n{_lines(_from(frame, None))}"
    if hasattr(place, "cr_frame"):
        if place.cr_running:
            frame = sys._current_frames().get(loop_thread)
            head = "It is running now, and blocks its event loop:"
            return f"{head}\n{_lines(_from(frame, place.cr_code))}"
        return f"It is waiting in its event loop:\n{_lines(list(_awaited(place)))}"
    if hasattr(place, "pid"):
        return (
            f"In the child process {place.pid}. Its stack cannot be read from here. On its host, "
            f"run: py-spy dump --pid {place.pid}"
        )
    return "Its handler has not begun, or has just ended."


def _awaited(place: Any) -> Iterator[FrameType]:
    """Yield the frames from the handler's coroutine down to what it awaits."""
    for _ in range(_DEEPEST):
        for frame, following in _LINKS:
            if hasattr(place, frame):
                if (found := getattr(place, frame)) is not None:
                    yield found
                place = getattr(place, following)
                break
        else:
            return


def _from(frame: FrameType | None, first: CodeType | None) -> list[FrameType]:
    """The frames of a thread, the oldest first: from ``first`` on, or without leasework's own."""
    found: list[FrameType] = []
    while frame is not None and len(found) < _DEEPEST:
        found.append(frame)
        if first is not None and frame.f_code is first:
            break
        frame = frame.f_back
    found.reverse()
    if first is None:
        ours = [n for n, f in enumerate(found) if f.f_code.co_filename.endswith(_OURS)]
        found = found[ours[-1] + 1 :] if ours else found
    return found


_OURS = "leasework/jobs/attempt.py"


def _lines(frames: list[FrameType]) -> str:
    summary = traceback.StackSummary.extract(
        ((frame, frame.f_lineno) for frame in frames if frame.f_lineno is not None),
        lookup_lines=True,
        capture_locals=False,
    )
    return "".join(summary.format()).rstrip() or "  (it has just ended)"
