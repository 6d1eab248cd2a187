"""Four who look: the command, the page, the metric, and Prometheus with the shipped rules; each
again and again in a thread."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from leasework.cli.monitoring import alert_name
from leasework.watch.checks import CHECKS
from tests.detection.alerts import Alerts
from tests.support.procs import ROOT
from tests.support.wait import until

SOURCES = ("status", "dashboard", "metric", "alert")
PAUSE_SECONDS = 0.25


@dataclass
class Said:
    at: float
    """Of CLOCK_MONOTONIC, when the answer was there."""
    sentence: str


class Watch:
    """From :meth:`start` on, until each of the four has said a problem of this kind."""

    def __init__(
        self, url: str, alerts: Alerts, env: Mapping[str, str], kinds: Sequence[str], words: str
    ) -> None:
        self._url = url
        self._alerts = alerts
        self._env = env
        self._kinds = kinds
        self._words = re.compile(words)
        self._over = threading.Event()
        self.said: dict[str, Said] = {}
        self._looks: dict[str, Callable[[], str | None]] = {
            "status": self._status,
            "dashboard": self._dashboard,
            "metric": self._metric,
            "alert": self._alert,
        }
        self._threads = [
            threading.Thread(target=self._watch, args=(source,), daemon=True) for source in SOURCES
        ]

    def silent(self) -> None:
        """Wait until no source reports the problem.

        While the stage starts, one may. For example, the alert that no node is alive stays active
        until Prometheus evaluates its rule again.
        """
        for source, look in self._looks.items():

            def quiet(look: Callable[[], str | None] = look) -> bool:
                return look() is None

            until(quiet, 30, f"{source} to stop reporting {self._kinds}")

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> dict[str, Said]:
        """What was said within so many seconds."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self.stop()
        return self.said

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            if thread.ident:
                thread.join(30)

    def _watch(self, source: str) -> None:
        while not self._over.is_set():
            sentence = self._looks[source]()
            if sentence is not None:
                self.said[source] = Said(time.monotonic(), sentence)
                return
            self._over.wait(PAUSE_SECONDS)

    def _status(self) -> str | None:
        command = [sys.executable, "-m", "leasework", "status", "--json"]
        done = subprocess.run(
            command, env=dict(self._env), cwd=ROOT, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        told = json.loads(done.stdout)
        for problem in [p for cause in told["problems"] for p in (cause, *cause["symptoms"])]:
            if problem["kind"] in self._kinds:
                assert done.returncode == 1
                assert self._words.search(problem["sentence"]), problem["sentence"]
                return str(problem["sentence"])
        return None

    def _dashboard(self) -> str | None:
        page = html.unescape(httpx.get(f"{self._url}now", timeout=30).text)
        lines = (line.strip() for line in re.sub(r"<[^>]+>", "\n", page).splitlines())
        return next((line for line in lines if self._words.search(line)), None)

    def _metric(self) -> str | None:
        text = httpx.get(f"{self._url}metrics", timeout=30).text
        for kind in self._kinds:
            series = rf'^leasework_problems{{cause="\w*",kind="{kind}",subject=".*"}} ([\d.]+)$'
            found = list(re.finditer(series, text, re.M))
            assert found, text
            for one in found:
                if float(one[1]) > 0:
                    return one[0]
        return None

    def _alert(self) -> str | None:
        """That of the problem, or of its cause: there is none for a symptom."""
        kinds = {
            *self._kinds,
            *(check.kind for check in CHECKS.values() if {*self._kinds} & {*check.explains}),
        }
        active = self._alerts.active()
        return next((name for name in map(alert_name, sorted(kinds)) if name in active), None)
