"""The trace of one run, line by line: virtual time, who, and what happened.

Ids are shortened while they stay distinct: ``p0.2`` is the second start on host 0, ``j17`` the 17th
job seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, structs

from leasework.store.nodes import NodeIdentity
from leasework.store.operation import Term

_UNTOLD = {"record", "database_now", "due_schedules", "next_schedule"}
_WIDEST = 160


class Trace:
    """``now``: true time, in seconds since the start."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.lines: list[str] = []
        self._now = now
        self._nodes: dict[UUID, str] = {}
        self._jobs: dict[UUID, str] = {}

    def run(self, who: str, mark: str, job: UUID, token: int, task: str = "") -> None:
        """A handler begins (▶) or ends (■)."""
        self.note(who, f"{mark} {self.job(job)} {task}".rstrip() + f" under {_token(token)}")

    def note(self, who: str, text: str) -> None:
        text = text.partition("\n")[0]  # the first line of a traceback is enough
        if len(text) > _WIDEST:
            text = f"{text[:_WIDEST]} …"
        self.lines.append(f"{self._now():9.3f}  {who:<9} {text}")

    def fault(self, text: str) -> None:
        self.lines.append(f"{self._now():9.3f}  {'FAULT':<9} ══ {text}")

    def wrong(self, text: str) -> None:
        self.lines.append(f"{self._now():9.3f}  {'VIOLATED':<9} ✗✗ {text}")

    def event(self, who: str, kind: str, told: Mapping[str, Any]) -> None:
        jobs = {str(job): short for job, short in self._jobs.items()}
        known = {name: jobs.get(str(value), value) for name, value in told.items()}
        words = " ".join(f"{name}={self.short(value)}" for name, value in known.items())
        self.note(who, f"! {kind} {words}".rstrip())

    def node(self, identity: NodeIdentity) -> str:
        return self._nodes.setdefault(identity.id, f"p{identity.host[1:]}.{identity.pid}")

    def job(self, job: UUID) -> str:
        return self._jobs.setdefault(job, f"j{len(self._jobs) + 1}")

    def statement(self, who: str, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """A statement was executed for ``who``."""
        if name in _UNTOLD:
            return
        if name == "register":
            self.node(args[0])
        tell = getattr(self, f"_{name}", None)
        text = tell(args, answer) if tell else self._any(name, args, answer)
        if text:
            self.note(who, text)

    # -- statements in words; an empty text makes no line ----------------------------------------
    def _any(self, name: str, args: tuple[Any, ...], answer: Any) -> str:
        if answer in (None, 0, [], ()):
            answer = "nothing"
        given = " ".join(self.short(arg) for arg in args if arg is not None)
        return f"{name} {given} → {self.short(answer)}"

    def _heartbeat(self, args: tuple[Any, ...], answer: Any) -> str:
        node, _, held, *_ = args
        text = f"heartbeat of {self.short(node)}: {'renewed' if answer.node_renewed else 'REFUSED'}"
        for term in held:
            kept = "renewed" if term.leader in answer.led else "LOST"
            text += f", {self.short(term)} {kept}"
        return text

    def _register(self, args: tuple[Any, ...], answer: Any) -> str:
        return f"{self.node(args[0])} joins, release {args[0].release}, token {_token(answer)}"

    def _acquire(self, args: tuple[Any, ...], answer: Any) -> str:
        name, identity = args[0], args[1]
        got = f"term {_token(answer)}" if answer else "the row has changed"
        return f"{self.node(identity)} acquires {name}: {got}"

    def _claim(self, args: tuple[Any, ...], answer: Any) -> str:
        jobs = ", ".join(f"{self.job(j.id)} {j.task} under {_token(j.claim_token)}" for j in answer)
        return f"{self.short(args[0])} claims {jobs}" if jobs else ""

    def _ack(self, args: tuple[Any, ...], answer: Any, verb: str = "acks") -> str:
        told = []
        for item in args[1]:
            fate = "" if item.job in answer.written else " REFUSED"
            fate = " (locked)" if item.job in answer.locked else fate
            state = str(item.decision.state)
            told.append(f"{self.job(item.job)} {state} under {_token(item.token)}{fate}")
        return f"{self.short(args[0])} {verb} {', '.join(told)}"

    def _ack_again(self, args: tuple[Any, ...], answer: Any) -> str:
        return self._ack(args, answer, "asks again and acks")

    def _enqueue(self, args: tuple[Any, ...], answer: Any) -> str:
        jobs = ", ".join(
            f"{self.job(job_id)} {request.task}{'' if created else ' (was there)'}"
            for (_, request), (job_id, created) in zip(args[0], answer, strict=True)
        )
        return f"enqueues {jobs}{', again' if args[2] else ''}"

    def _copy(self, args: tuple[Any, ...], answer: Any) -> str:
        return f"copies {args[1]} jobs"

    def _stage(self, args: tuple[Any, ...], answer: Any) -> str:
        if not answer.count + answer.held_on:
            return ""
        return f"stages {answer.count} under {self.short(args[0])}, {answer.held_on} held on"

    def _fire(self, args: tuple[Any, ...], answer: Any) -> str:
        done = ", ".join(f"{name} {at:%H:%M:%S} {state}" for name, at, state in answer)
        return f"fires {done or 'NOTHING'} under {self.short(args[0])}"

    def _bury(self, args: tuple[Any, ...], answer: Any) -> str:
        fate = "buried" if answer else "NOT buried"
        return f"{self.short(args[1])} {fate} under {self.short(args[0])}"

    def _deaths(self, args: tuple[Any, ...], answer: Any) -> str:
        return f"sees deaths of {', '.join(self.short(n) for n, _ in answer)}" if answer else ""

    def _rescue(self, args: tuple[Any, ...], answer: Any) -> str:
        return f"rescues {', '.join(self.job(freed.job) for freed in answer)}" if answer else ""

    def _note_stranded(self, args: tuple[Any, ...], answer: Any) -> str:
        return (
            f"finds jobs stranded on {', '.join(map(self.short, answer[1]))}" if answer[1] else ""
        )

    def _completion(self, args: tuple[Any, ...], answer: Any) -> str:
        return ""

    def _sweep(self, args: tuple[Any, ...], answer: Any) -> str:
        told = ", ".join(f"{b.name} of {self.short(b.job)}" for b in answer.breaches)
        return f"finds breached: {told}" if told else ""

    def short(self, value: Any) -> str:
        """Any value, as short as it can be understood."""
        match value:
            case UUID():
                return self._nodes.get(value) or self._jobs.get(value) or f"…{value.hex[-6:]}"
            case NodeIdentity():
                return self.node(value)
            case Term():
                return f"term {_token(value.token)}"
            case datetime():
                return f"{value:%H:%M:%S}"
            case float():
                return f"{value:.3g}"
            case dict():
                return self._list((f"{k}={self.short(v)}" for k, v in value.items()), "{}")
            case list() | tuple() | set() | frozenset():
                return self._list((self.short(item) for item in value), "[]")
        if is_dataclass(value) and not isinstance(value, type):
            return self._list((self.short(getattr(value, f.name)) for f in fields(value)), "()")
        if isinstance(value, Struct):
            return self._list((self.short(part) for part in structs.astuple(value)), "()")
        return str(value)

    def _list(self, words: Iterable[str], brackets: str) -> str:
        return f"{brackets[0]}{', '.join(words)}{brackets[1]}"


def _token(token: int) -> str:
    """A token as people see it: 7, or 2.1 after the first promotion."""
    return f"{(token >> 32) + 1}.{token & 0xFFFFFFFF}" if token >> 32 else str(token)
