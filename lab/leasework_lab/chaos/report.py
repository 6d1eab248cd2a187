"""The report of one or several campaigns: an HTML page for people, JSON for tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from leasework import __version__
from leasework_lab.chaos.campaign import Result
from leasework_lab.chaos.check_leases import SLACK_SECONDS, leaderless
from leasework_lab.chaos.checkers import Check
from leasework_lab.chaos.counts import Counts
from leasework_lab.chaos.timeline import Timeline

_WORST = ("violated", "unknown", "held", "idle")
"""The verdict of several runs is the first of these that occurs."""
_VERDICTS = {"idle": "nothing to check"}
_WORDS = {
    "faults": "faults",
    "acknowledged": "acknowledged enqueues",
    "terms": "terms",
    "unknown": "unknown outcomes",
    "recovered": "of them had succeeded",
    "stale": "stale completions refused",
    "fenced": "duties fenced",
    "runs": "handler runs",
    "ticks": "ticks fired",
    "effects": "effects",
    "duties": "duties committed",
    "seconds": "seconds of faults",
}


def verdict_of(results: Sequence[Result], void: Sequence[str]) -> str:
    """``violated``, ``void``, ``unknown`` or ``held``."""
    if any(result.violations for result in results):
        return "violated"
    if any(result.unknown for result in results):
        return "unknown"
    return "void" if void else "held"


def to_json(results: Sequence[Result], total: Counts, void: Sequence[str]) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "leasework": __version__,
        "verdict": verdict_of(results, void),
        "void": list(void),
        "total": total.to_json(),
        "runs": [_run_to_json(result) for result in results],
    }


def _run_to_json(result: Result) -> dict[str, Any]:
    campaign, timings = result.campaign, result.settings.timings
    zero = campaign.began_at
    return {
        "profile": campaign.profile,
        "seed": campaign.seed,
        "postgres": result.postgres,
        "recover_within": result.settings.recover_within,
        "seconds": round(campaign.healed_at - zero, 3),
        "load": campaign.load,
        "drained": campaign.drained,
        "counts": result.counts.to_json(),
        "checks": [
            {"name": c.name, "promise": c.promise, "verdict": c.verdict, "looked_at": c.looked_at,
             "violations": c.violations}
            for c in result.checks
        ],
        "gaps": [
            {"at": round(gap.start - zero, 3), "seconds": round(gap.end - gap.start, 3),
             "waited": round(gap.waited, 3), "bound": round(timings.failover + SLACK_SECONDS, 3)}
            for gap in leaderless(campaign, timings)
        ],
        "faults": [
            {"kind": f.kind, "target": f.target, "at": round(f.start - zero, 3),
             "seconds": round(f.end - f.start, 3), "what": f.words}
            for f in campaign.faults
        ],
        "events": result.tables.events if result.tables else None,
    }  # fmt: skip


def to_html(results: Sequence[Result], total: Counts, void: Sequence[str]) -> str:
    """The report as one self-contained page."""
    verdict = verdict_of(results, void)
    head = {
        "held": "Every promise held",
        "violated": "A promise was broken",
        "void": "Too little happened for a verdict",
        "unknown": "The database could not be read, so there is no verdict",
    }[verdict]
    parts = [
        *[f'<p class="void">Void: {escape(text)}.</p>' for text in void],
        "<h2>Totals</h2>",
        _figures(total),
        "<h2>Checks</h2>",
        _checks(results),
        "<h2>Leaderless gaps</h2>",
        _gaps(results),
        *[_run(result) for result in results],
    ]
    words = f"{len(results)} run(s), seeds {_seeds(results)}"
    return page("leasework chaos", verdict, head, words, parts)


def page(what: str, verdict: str, head: str, words: str, parts: Sequence[str]) -> str:
    """A self-contained page for any report: title, verdict, a sentence, and ``parts`` as HTML."""
    style = files("leasework_lab.chaos").joinpath("report.css").read_text("utf-8")
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{what}: {escape(head)}</title><style>{style}</style></head><body>",
            f'<header class="{verdict}"><h1>{escape(head)}</h1>',
            f"<p>leasework {__version__}: {escape(words)}</p></header>",
            *parts,
            "</body></html>",
        ]
    )


def _seeds(results: Sequence[Result]) -> str:
    return ", ".join(f"{r.campaign.profile} {r.campaign.seed}" for r in results)


def _figures(total: Counts) -> str:
    items = [
        f"<li><b>{value:,.0f}</b> {_WORDS[name]}</li>" for name, value in total.to_json().items()
    ]
    return f'<ul class="figures">{"".join(items)}</ul>'


def _checks(results: Sequence[Result]) -> str:
    """One row per check, over all runs."""
    merged: dict[str, list[Check]] = {}
    for result in results:
        for check in result.checks:
            merged.setdefault(check.name, []).append(check)
    rows = []
    for name, checks in merged.items():
        wrong = [text for check in checks for text in check.violations]
        looked = sum(check.looked_at for check in checks)
        verdict = next(v for v in _WORST if v in {check.verdict for check in checks})
        more = "".join(f"<li>{escape(text)}</li>" for text in wrong)
        rows.append(
            f'<tr class="{verdict}"><td>{escape(name)}</td><td>{escape(checks[0].promise)}'
            f"{f'<ul>{more}</ul>' if more else ''}</td>"
            f'<td class="n">{looked:,}</td><td>{_VERDICTS.get(verdict, verdict)}</td></tr>'
        )
    head = '<tr><th>check</th><th>promise</th><th class="n">examined</th><th>verdict</th></tr>'
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _gaps(results: Sequence[Result]) -> str:
    """Each time without a leader, and how long a well process had to wait in it."""
    rows = []
    for result in results:
        timings = result.settings.timings
        bound = timings.failover + SLACK_SECONDS
        for gap in leaderless(result.campaign, timings):
            share = min(gap.waited / bound, 1.0) * 100
            kind = "violated" if gap.waited > bound else "held"
            at = gap.start - result.campaign.began_at
            rows.append(
                f"<tr><td>{escape(result.campaign.profile)} {result.campaign.seed}</td>"
                f'<td class="n">{at:.1f} s</td><td class="n">{gap.end - gap.start:.2f} s</td>'
                f'<td class="n">{gap.waited:.2f} s</td>'
                f'<td><div class="bound"><i class="{kind}" style="width:{share:.0f}%"></i></div>'
                f"</td></tr>"
            )
    if not rows:
        return "<p>None.</p>"
    timings = results[0].settings.timings
    note = (
        f"<p>The bound applies to a process that is well (it renews its own lease, and no fault "
        f"hits it or the database) while the leader's row does not change hands: "
        f"F = {timings.failover:.2f} s with a lease of {timings.lease:g} s, plus "
        f"{SLACK_SECONDS:g} s for a busy machine.</p>"
    )
    head = (
        '<tr><th>run</th><th class="n">at</th><th class="n">nobody led</th>'
        '<th class="n">a well process waited</th><th>of the bound</th></tr>'
    )
    return f'{note}<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _run(result: Result) -> str:
    campaign = result.campaign
    kinds = Counter(fault.kind for fault in campaign.faults)
    faults = ", ".join(f"{many} {kind}" for kind, many in kinds.most_common()) or "none"
    legend = "".join(
        f'<span><i class="{name}"></i>{words}</span>'
        for name, words in (
            ("term", "leads (its term)"), ("lease", "has its lease"), ("life", "runs"),
            ("pause", "stopped"), ("kill", "killed"), ("deploy", "restarted"),
            ("net", "its network"), ("data", "the database, a clock"), ("gap", "nobody leads"),
        )
    )  # fmt: skip
    again = f"leasework chaos --profile {campaign.profile} --seed {campaign.seed}"
    within = result.settings.recover_within
    if result.postgres:
        again += f" --postgres {result.postgres.partition('.')[0]} --recover-within {within:g}"
    server = (
        f"PostgreSQL {result.postgres}, recover_within {within:g} s. " if result.postgres else ""
    )
    seconds = campaign.healed_at - campaign.began_at
    return (
        f"<h2>{escape(campaign.profile)}, seed {campaign.seed}</h2>"
        f"<p>{server}{seconds:.0f} s, load average {campaign.load:.1f}. Faults: {escape(faults)}. "
        f"To repeat the same draws: <code>{escape(again)} --seconds {seconds:.0f}</code> "
        f"(the processes that they hit, and the timing, differ each time)</p>"
        f'<p class="legend">{legend}</p>'
        f'<div class="wide">{Timeline(campaign, result.settings.timings).svg()}</div>'
        f"{_logs(result)}"
    )


def _logs(result: Result) -> str:
    return "".join(
        f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in result.logs.items()
    )
