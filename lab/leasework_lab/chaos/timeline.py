"""The timeline of a campaign as inline SVG: who led, which faults hit which process, and when."""

from __future__ import annotations

from html import escape

from leasework.config import Timings
from leasework_lab.chaos.check_leases import Gap, beliefs, leaderless, leaderships
from leasework_lab.chaos.history import Campaign, Fault

_LEFT, _RIGHT, _TOP = 84, 12, 22
_LANE, _BAR = 34, 12
_SECOND = 11
"""Pixels per second."""
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


class Canvas:
    """Lanes over seconds. ``names``: the lanes. ``zero``: where the ruler starts to count.
    ``left``: pixels for the names. The width grows with the number of seconds."""

    def __init__(
        self, names: list[str], start: float, zero: float, end: float, left: int = _LEFT
    ) -> None:
        self.names = names
        self.start, self.zero, self.end = start, zero, end
        self.left = left
        self.width = left + _RIGHT + (end - start) * _SECOND
        self.height = _TOP + _LANE * len(names) + 26

    def svg(self, parts: list[str]) -> str:
        """The lanes with ``parts`` on them."""
        head = (
            f'<svg viewBox="0 0 {self.width:.0f} {self.height}" width="{self.width:.0f}" '
            f'height="{self.height}" role="img" aria-label="timeline">'
        )
        return "\n".join([head, *self._grid(), *parts, "</svg>"])

    def x(self, at: float) -> float:
        return self.left + (min(max(at, self.start), self.end) - self.start) * _SECOND

    def y(self, name: str) -> float:
        return _TOP + _LANE * self.names.index(name)

    def _grid(self) -> list[str]:
        parts = []
        for number, name in enumerate(self.names):
            y = _TOP + _LANE * number
            parts.append(f'<text class="name" x="4" y="{y + 16}">{escape(name)}</text>')
            line = f'x1="{self.left}" x2="{self.width - _RIGHT:.0f}" y1="{y - 2}" y2="{y - 2}"'
            parts.append(f'<line class="rule" {line}/>')
        bottom = self.bottom
        second = 0
        while self.zero + second < self.end:
            x = self.x(self.zero + second)
            parts.append(f'<line class="rule" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
            parts.append(f'<text class="second" x="{x}" y="{bottom + 15}">{second} s</text>')
            second += 5
        return parts

    @property
    def bottom(self) -> int:
        return _TOP + _LANE * len(self.names)

    def bar(self, kind: str, name: str, start: float, end: float, title: str) -> str:
        """A process's state: it runs, has its lease, leads."""
        return self._bar(kind, name, 0, start, end, title)

    def below(self, kind: str, name: str, start: float, end: float, title: str) -> str:
        """A fault that hits it."""
        return self._bar(kind, name, _BAR + 4, start, end, title)

    def number(self, name: str, at: float, text: object) -> str:
        """A number on a bar."""
        return (
            f'<text class="number" x="{self.x(at) + 3:.1f}" y="{self.y(name) + 10}">{text}</text>'
        )

    def _bar(self, kind: str, name: str, down: float, start: float, end: float, title: str) -> str:
        x = self.x(start)
        width = max(self.x(end) - x, _SHORTEST)
        y = self.y(name) + down
        return (
            f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}">'
            f"<title>{escape(title)}</title></rect>"
        )


class Timeline:
    """Draws one campaign; see ``svg()``."""

    def __init__(self, campaign: Campaign, timings: Timings) -> None:
        self._campaign = campaign
        names = [*sorted({p.name for p in campaign.processes}), "database"]
        began_at = campaign.began_at
        self._canvas = Canvas(names, began_at - 1, began_at, campaign.ended_at)
        self._gaps = leaderless(campaign, timings)

    def svg(self) -> str:
        return self._canvas.svg(
            [
                *self._healed(),
                *[self._gap(gap) for gap in self._gaps],
                *self._lives(),
                *self._terms(),
                *[self._fault(fault) for fault in self._campaign.faults],
            ]
        )

    def _healed(self) -> list[str]:
        x = self._canvas.x(self._campaign.healed_at)
        return [
            f'<line class="healed" x1="{x}" x2="{x}" y1="4" y2="{self._canvas.bottom}"/>',
            f'<text class="second" x="{x + 4}" y="14">no more faults</text>',
        ]

    def _gap(self, gap: Gap) -> str:
        canvas = self._canvas
        x, width = canvas.x(gap.start), canvas.x(gap.end) - canvas.x(gap.start)
        height = _LANE * len(canvas.names)
        title = (
            f"nobody led for {gap.end - gap.start:.2f} s; a well process waited {gap.waited:.2f} s"
        )
        return (
            f'<rect class="gap" x="{x:.1f}" y="{_TOP}" width="{width:.1f}" height="{height}">'
            f"<title>{title}</title></rect>"
        )

    def _lives(self) -> list[str]:
        parts, bar = [], self._canvas.bar
        for process in self._campaign.processes:
            until = process.ended_at or self._canvas.end
            title = f"{process}: {process.how or 'lives'}"
            parts.append(bar("life", process.name, process.started_at, until, title))
            for span in beliefs(process, "node"):
                title = f"{process}: its lease"
                parts.append(bar("lease", process.name, span.start, span.end, title))
        return parts

    def _terms(self) -> list[str]:
        parts, canvas = [], self._canvas
        for span in leaderships(self._campaign):
            words = f"term {span.token}: {span.process} led for {span.end - span.start:.1f} s"
            name = span.process.name
            parts.append(canvas.bar("term", name, span.start, span.end, words))
            if span.end - span.start > 1.5:
                parts.append(canvas.number(name, span.start, span.token))
        return parts

    def _fault(self, fault: Fault) -> str:
        kind = _COLOURS.get(fault.kind, "data")
        title = f"{fault.kind}: {fault.words}"
        return self._canvas.below(kind, fault.target, fault.start, fault.end, title)
