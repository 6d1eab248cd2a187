"""The record of a demo, and the page that shows it to somebody who was not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from leasework_lab.chaos.report import page
from leasework_lab.chaos.timeline import Canvas
from leasework_lab.demo.app import NAME
from leasework_lab.demo.scorecard import Act, Scorecard
from leasework_lab.demo.show import lines
from leasework_lab.demo.stage import Stage

_MOST_TERMS = 500
_NAMES_PIXELS = 110
_DATABASE = "database"
_COLOURS = {
    "kill": "kill", "freeze": "pause", "cut": "net", "restart": "data", "deploy": "deploy",
}  # fmt: skip


@dataclass(frozen=True)
class Life:
    """One process. Times are seconds since the start."""

    lane: str
    start: float
    end: float
    how: str


@dataclass(frozen=True)
class Tenure:
    """One term, from its acquisition to the next one or to the end of its process."""

    lane: str
    term: int
    start: float
    end: float


@dataclass(frozen=True)
class Recording:
    lives: Sequence[Life]
    terms: Sequence[Tenure]
    acts: Sequence[Act]
    stories: Sequence[tuple[float, str]]
    seconds: float

    @classmethod
    async def of(cls, stage: Stage) -> Recording:
        end = stage.seconds
        lives = []
        for worker in stage.fleet.workers:
            ended = worker.ended_at - stage.started_at if worker.ended_at else end
            how = "killed" if worker.killed else "stopped cleanly" if worker.retired else ""
            lives.append(Life(stage.lane(worker), worker.started_at - stage.started_at, ended, how))
        rows = await (await stage.demo.app.reports()).terms(NAME, _MOST_TERMS)
        rows = sorted(rows, key=lambda row: row.term)
        ends = {life.lane: life.end for life in lives}
        terms = []
        for place, row in enumerate(rows):
            worker_ = stage.fleet.find(row.holder)
            if worker_ is None:
                continue
            lane = stage.lane(worker_)
            following = stage.since(rows[place + 1].acquired_at) if place + 1 < len(rows) else end
            start = stage.since(row.acquired_at)
            terms.append(Tenure(lane, row.term, start, min(following, ends[lane])))
        return cls(lives, terms, list(stage.acts), list(stage.picture.stories), end)


def to_html(card: Scorecard, recording: Recording, first_job_seconds: float | None) -> str:
    """The scorecard and the recording as one self-contained page."""
    head = (
        "Nothing was lost, and nothing was repeated without a cause"
        if card.ok
        else "A promise was broken"
    )
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in lines(card, first_job_seconds)
    )
    parts = [
        *[f'<p class="void">{escape(problem)}</p>' for problem in card.problems],
        "<h2>Scorecard</h2>",
        f'<div class="wide"><table>{rows}</table></div>',
        "<h2>Faults</h2>",
        _acts(recording.acts),
        "<h2>Who led when</h2>",
        _LEGEND,
        f'<div class="wide">{_timeline(recording)}</div>',
        "<h2>What happened</h2>",
        _stories(recording.stories),
    ]
    words = f"a demo of {recording.seconds:.0f} seconds on real processes and a real PostgreSQL"
    return page("leasework demo", "held" if card.ok else "violated", head, words, parts)


_LEGEND = (
    '<p class="legend"><span><i class="life"></i>runs</span><span><i class="term"></i>leads (its '
    'term)</span><span><i class="kill"></i>killed</span><span><i class="pause"></i>frozen</span>'
    '<span><i class="net"></i>cut off</span><span><i class="data"></i>PostgreSQL crashed</span>'
    '<span><i class="deploy"></i>two releases side by side</span></p>'
)


def _acts(acts: Sequence[Act]) -> str:
    if not acts:
        return "<p>Nothing.</p>"
    rows = "".join(
        f'<tr class="{"violated" if act.failed else "held"}"><td class="n">{act.at:.1f} s</td>'
        f"<td>{escape(act.words)}</td><td>{escape(act.outcome)}</td></tr>"
        for act in acts
    )
    head = '<tr><th class="n">at</th><th>fault</th><th>outcome</th></tr>'
    return f'<div class="wide"><table>{head}{rows}</table></div>'


def _stories(stories: Sequence[tuple[float, str]]) -> str:
    rows = "".join(
        f'<tr><td class="n">{at:.1f} s</td><td>{escape(text)}</td></tr>' for at, text in stories
    )
    return f'<div class="wide"><table>{rows}</table></div>'


def _timeline(recording: Recording) -> str:
    names = [*dict.fromkeys(life.lane for life in recording.lives), _DATABASE]
    canvas = Canvas(names, 0.0, 0.0, recording.seconds, _NAMES_PIXELS)
    parts = [
        canvas.bar("life", life.lane, life.start, life.end, f"{life.lane}: {life.how or 'lives'}")
        for life in recording.lives
    ]
    for term in recording.terms:
        title = f"{term.lane} led in term {term.term} for {term.end - term.start:.1f} s"
        parts.append(canvas.bar("term", term.lane, term.start, term.end, title))
        if term.end - term.start > 1.5:
            parts.append(canvas.number(term.lane, term.start, term.term))
    for act in recording.acts:
        if act.kind in _COLOURS:
            kind, end = _COLOURS[act.kind], act.until
            if end is None:
                end = act.at + 0.3 if act.kind == "kill" else recording.seconds
            title = f"{act.words}: {act.outcome}"
            parts.append(canvas.below(kind, act.lane, act.at, end, title))
    return canvas.svg(parts)
