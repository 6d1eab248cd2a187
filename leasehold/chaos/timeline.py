"""The timeline of a campaign as inline SVG: who led, what was done to whom, and when."""

from __future__ import annotations

from html import escape

from leasehold.chaos.check_leases import Gap, beliefs, leaderless, leaderships
from leasehold.chaos.history import Campaign, Fault
from leasehold.config import Timings

_LEFT, _RIGHT, _TOP = 84, 12, 22
_LANE, _BAR = 34, 12
_SECOND = 11
"""Pixels."""
_SHORTEST = 3
_COLOURS = {
    "pause": "pause",
    "kill": "kill",
    "restart": "deploy",
    "hole": "net",
    "lost answers": "net",
    "delay": "net",
    "reset": "net",
    "half-open": "net",
}


class Timeline:
    """``svg()`` of one campaign; its width grows with its seconds."""

    def __init__(self, campaign: Campaign, timings: Timings) -> None:
        self._campaign = campaign
        self._names = [*sorted({p.name for p in campaign.processes}), "database"]
        self._start = campaign.began_at - 1
        self._end = campaign.ended_at
        self._gaps = leaderless(campaign, timings)
        self._width = _LEFT + _RIGHT + (self._end - self._start) * _SECOND
        self._height = _TOP + _LANE * len(self._names) + 26

    def svg(self) -> str:
        parts = [
            f'<svg viewBox="0 0 {self._width:.0f} {self._height}" width="{self._width:.0f}" '
            f'height="{self._height}" role="img" aria-label="timeline">',
            *self._grid(),
            *[self._gap(gap) for gap in self._gaps],
            *self._lives(),
            *self._terms(),
            *[self._fault(fault) for fault in self._campaign.faults],
            "</svg>",
        ]
        return "\n".join(parts)

    def _x(self, at: float) -> float:
        return _LEFT + (min(max(at, self._start), self._end) - self._start) * _SECOND

    def _y(self, name: str) -> float:
        return _TOP + _LANE * self._names.index(name)

    def _grid(self) -> list[str]:
        parts = []
        for number, name in enumerate(self._names):
            y = _TOP + _LANE * number
            parts.append(f'<text class="name" x="4" y="{y + 16}">{escape(name)}</text>')
            line = f'x1="{_LEFT}" x2="{self._width - _RIGHT:.0f}" y1="{y - 2}" y2="{y - 2}"'
            parts.append(f'<line class="rule" {line}/>')
        bottom = _TOP + _LANE * len(self._names)
        second = 0
        while self._campaign.began_at + second < self._end:
            x = self._x(self._campaign.began_at + second)
            parts.append(f'<line class="rule" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
            parts.append(f'<text class="second" x="{x}" y="{bottom + 15}">{second} s</text>')
            second += 5
        healed = self._x(self._campaign.healed_at)
        parts.append(f'<line class="healed" x1="{healed}" x2="{healed}" y1="4" y2="{bottom}"/>')
        parts.append(f'<text class="second" x="{healed + 4}" y="14">no more faults</text>')
        return parts

    def _gap(self, gap: Gap) -> str:
        x, width = self._x(gap.start), self._x(gap.end) - self._x(gap.start)
        height = _LANE * len(self._names)
        title = (
            f"nobody led for {gap.end - gap.start:.2f} s; a well process waited {gap.waited:.2f} s"
        )
        return (
            f'<rect class="gap" x="{x:.1f}" y="{_TOP}" width="{width:.1f}" height="{height}">'
            f"<title>{title}</title></rect>"
        )

    def _lives(self) -> list[str]:
        parts = []
        for process in self._campaign.processes:
            until = process.ended_at or self._end
            parts.append(
                self._bar("life", process.name, 0, process.started_at, until,
                          f"{process}: {process.how or 'lives'}", _BAR)
            )  # fmt: skip
            for span in beliefs(process, "node"):
                parts.append(
                    self._bar("lease", process.name, 0, span.start, span.end,
                              f"{process}: its lease", _BAR)
                )  # fmt: skip
        return parts

    def _terms(self) -> list[str]:
        parts = []
        for span in leaderships(self._campaign):
            words = f"term {span.token}: {span.process} led for {span.end - span.start:.1f} s"
            parts.append(self._bar("term", span.process.name, 0, span.start, span.end, words, _BAR))
            x, y = self._x(span.start) + 3, self._y(span.process.name) + 10
            if span.end - span.start > 1.5:
                parts.append(f'<text class="number" x="{x:.1f}" y="{y}">{span.token}</text>')
        return parts

    def _fault(self, fault: Fault) -> str:
        kind = _COLOURS.get(fault.kind, "data")
        title = f"{fault.kind}: {fault.words}"
        return self._bar(kind, fault.target, _BAR + 4, fault.start, fault.end, title, _BAR)

    def _bar(
        self, kind: str, name: str, down: float, start: float, end: float, title: str, height: float
    ) -> str:
        x = self._x(start)
        width = max(self._x(end) - x, _SHORTEST)
        y = self._y(name) + down
        return (
            f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}">'
            f"<title>{escape(title)}</title></rect>"
        )
