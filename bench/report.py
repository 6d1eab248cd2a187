"""Slices into medians and ratios; a table for people and JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.process import ROOT, commit

Slice = Mapping[str, float]
LEASEWORK = "leasework"


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def machine() -> dict[str, Any]:
    """What the figures depend on beside the code."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit(ROOT),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def load_average() -> float:
    return os.getloadavg()[0]


@dataclass
class Result:
    """All slices of one measure: contender → one mapping a round, ``columns`` in the table."""

    measure: str
    setting: str
    columns: dict[str, str]
    """Key of a slice → heading."""
    reference: str
    """Its name; empty: no ratios."""
    slices: dict[str, list[Slice]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def add(self, contender: str, figures: Slice) -> None:
        self.slices.setdefault(contender, []).append(figures)
        self.loads.append(load_average())

    def medians(self, contender: str) -> dict[str, float]:
        rounds = self.slices.get(contender, [])
        return {key: median([r[key] for r in rounds if key in r]) for key in self.columns}

    def ratios(self, contender: str) -> dict[str, float]:
        """The median over rounds of (this / the reference in the same round)."""
        each = self._each_ratio(contender, self.reference)
        return {key: median(ratios) for key, ratios in each.items()}

    def _each_ratio(self, one: str, other: str) -> dict[str, list[float]]:
        """Of each round; of none where the other has a zero in one, or no figure."""
        pairs = list(zip(self.slices[one], self.slices.get(other, []), strict=False))
        return {
            key: [a[key] / b[key] for a, b in pairs]
            if all(key in a and b.get(key) for a, b in pairs)
            else []
            for key in self.columns
        }

    def _against(self) -> dict[str, dict[str, list[float]]]:
        """leasework by each of the others but the reference, round by round."""
        others = [name for name in self.slices if name not in (self.reference, LEASEWORK)]
        if LEASEWORK not in self.slices or self.reference in ("", LEASEWORK):
            return {}
        return {name: self._each_ratio(LEASEWORK, name) for name in others}

    def to_json(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "setting": self.setting,
            "columns": self.columns,
            "reference": self.reference,
            "load_average": [min(self.loads, default=0.0), max(self.loads, default=0.0)],
            "contenders": {
                name: {
                    "median": self.medians(name),
                    "ratio": self.ratios(name),
                    "rounds": rounds,
                }
                for name, rounds in self.slices.items()
            },
            "against": self._against(),
        }


def headline(result: Mapping[str, Any]) -> str:
    """What was measured and how, of one :meth:`Result.to_json`."""
    rounds = max(len(of["rounds"]) for of in result["contenders"].values())
    low, high = result["load_average"]
    many = f"medians of {rounds} interleaved rounds" if rounds > 1 else "one round"
    to = result["reference"]
    compared = f", in brackets the ratio to {to}" if to else ""
    return f"{result['setting']}; {many}{compared}; load average {low:.1f} to {high:.1f}"


def table(result: Mapping[str, Any]) -> str:
    """Markdown: median, and in brackets the median of the rounds' ratios to the reference."""
    columns = result["columns"]
    lines = [
        "| | " + " | ".join(columns.values()) + " |",
        "|---" + "|---:" * len(columns) + "|",
    ]
    for name, of in result["contenders"].items():
        ratios = of["ratio"] if name != result["reference"] else {}
        cells = [_cell(of["median"][key], ratios.get(key)) for key in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def against(result: Mapping[str, Any]) -> str:
    """Markdown: leasework by each of the others; the median of the rounds' own ratios, and in
    brackets the least and the greatest. Empty where there are no others."""
    others, columns = result.get("against"), result["columns"]
    if not others:
        return ""
    lines = ["| leasework, by | " + " | ".join(columns.values()) + " |"]
    lines.append("|---" + "|---:" * len(columns) + "|")
    for name, each in others.items():
        cells = [_spread(each[key]) for key in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    spread = f" ({min(ratios):.3g} to {max(ratios):.3g})" if len(ratios) > 1 else ""
    return f"{median(ratios):.3g}{spread}"


def shown(result: Result) -> str:
    """For a terminal, and for whoever pastes it."""
    if not result.slices:
        return f"### {result.measure}\n\nnothing was measured"
    known = result.to_json()
    parts = [f"### {result.measure}", headline(known), table(known), against(known)]
    return "\n\n".join(part for part in parts if part)


def _cell(value: float, ratio: float | None) -> str:
    if value != value:
        return "-"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text if ratio is None or ratio != ratio else f"{text} ({ratio:.2f})"


def _anywhere(words: Sequence[str]) -> list[str]:
    """A command line without the place of its report, and with commits for the paths of builds."""
    kept = [
        re.sub(r"build=(.*)", lambda found: f"build={commit(Path(found[1]))}", w) for w in words
    ]
    while "--json" in kept:
        at = kept.index("--json")
        del kept[at : at + 2]
    return kept


def write_json(
    path: Path, results: Sequence[Result], settings: Mapping[str, str], parties: Sequence[str] = ()
) -> None:
    """``parties``: who was measured, with version and settings."""
    whole = {
        "command": shlex.join(["python", "-m", "bench", *_anywhere(sys.argv[1:])]),
        "machine": machine(),
        "postgres": dict(settings),
        "parties": list(parties),
        "results": [result.to_json() for result in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=1) + "\n")
