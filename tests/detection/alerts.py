"""A Prometheus of our own, with the rules that are shipped: which alerts are active?"""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import httpx

from leasework.cli.monitoring import rules
from tests.support.procs import Processes
from tests.support.wait import until


class Alerts:
    """It scrapes the dashboard at ``url`` every second, as if it were two endpoints."""

    def __init__(self, procs: Processes, folder: Path, url: str) -> None:
        program = shutil.which("prometheus")
        assert program, "prometheus is not installed"
        where = httpx.URL(url)
        (folder / "rules.yml").write_text(rules())
        scrape = {
            "job_name": "leasework",
            "static_configs": [
                {"targets": [f"{where.host}:{where.port}"], "labels": {"instance": name}}
                for name in ("web1", "web2")
            ],
        }
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.json").write_text(json.dumps(config))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._api = f"http://127.0.0.1:{port}/api/v1"
        command = [
            program, f"--config.file={folder / 'prometheus.json'}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        procs.run(command, name="prometheus")
        until(self._scraped, 60, "Prometheus to scrape")

    def _scraped(self) -> bool:
        try:
            answer = httpx.get(f"{self._api}/query", params={"query": "leasework_problems"})
            return bool(answer.json()["data"]["result"])
        except (httpx.HTTPError, KeyError, ValueError):
            return False

    def active(self) -> dict[str, str]:
        """Name of each alert that fires, or will when its problem lasts → ``firing``, ``pending``.
        Raises AssertionError when two endpoints make it fire twice."""
        found = httpx.get(f"{self._api}/alerts", timeout=30).json()["data"]["alerts"]
        keys = [tuple(sorted(alert["labels"].items())) for alert in found]
        assert len(keys) == len({key for key in keys}) and not any(
            "instance" in alert["labels"] for alert in found
        ), found
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}
