"""The alert rules and the dashboard that are shipped: accepted by promtool, each rule tested by it,
and every query names a metric of the real endpoint."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from leasework.cli.monitoring import alert_name, dashboard, rules
from leasework.cli.root import root
from leasework.watch.checks import CHECKS, KINDS
from leasework.watch.finding import NOTE
from leasework.watch.metric_names import METRICS
from tests.web.conftest import Make

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


@dataclass
class Case:
    """``bad``: series that fire the alert at ``at``; ``well``: the same ones when all is well."""

    bad: dict[str, str]
    well: dict[str, str]
    at: str = "10m"


UP = {"leasework_up": "1x60"}
NODES = 'leasework_nodes{app="app",version="1"}'


def event(kind: str) -> Case:
    series = f'leasework_events_total{{kind="{kind}"}}'
    return Case({series: "0x30 1x30"}, {series: "3x60"}, "32m")


def problem(kind: str, after: str) -> Case:
    series = f'leasework_problems{{kind="{kind}"}}'
    return Case({series: "1x120"}, {series: "0x120"}, "70m" if after == "1h" else "10m")


def grows(series: str, bad: str, well: str) -> Case:
    """By so much a minute."""
    return Case({series: f"0+{bad}x60"}, {series: f"0+{well}x60"}, "30m")


CASES: dict[str, list[Case]] = {
    "LeaseworkDown": [Case({"leasework_nodes": "1x60"}, UP)],
    "LeaseworkLeaderless": [
        Case(
            {'leasework_lease_leaderless_seconds_total{name="app"}': "0+10x60", NODES: "2x60"},
            {'leasework_lease_leaderless_seconds_total{name="app"}': "0+1x60", NODES: "2x60"},
            "30m",
        ),
        Case(
            {'leasework_lease_leaderless_seconds_total{name="app"}': "0+10x60", NODES: "2x60"},
            {
                'leasework_lease_leaderless_seconds_total{name="leader:old"}': "0+60x60",
                NODES: "2x60",
            },
            "30m",
        ),
    ],
    "LeaseworkLeaderChangesOften": [
        grows('leasework_lease_expired_total{name="app"}', "1", "0.1"),
        grows('leasework_lease_acquired_total{name="app"}', "3", "1"),
    ],
    "LeaseworkRenewalsFailOften": [
        grows('leasework_lease_renew_failed_total{app="app"}', "1", "0.1"),
    ],
    "LeaseworkContention": [
        grows('leasework_lease_contended_total{name="app"}', "5", "1"),
    ],
    "LeaseworkRefusedAcks": [event("ack_refused")],
    **{
        alert_name(check.kind): [problem(check.kind, check.alert_after)]
        for check in map(CHECKS.__getitem__, KINDS)
        if check.level != NOTE
    },
}


def from_endpoint(series: str, instance: str) -> str:
    """As Prometheus stores it: with the address of what it scraped."""
    if series.startswith("ALERTS"):
        return series
    name, _, labels = series.rstrip("}").partition("{")
    return f'{name}{{{labels}{"," if labels else ""}instance="{instance}"}}'


def examples_of(alert: str, cases: list[Case]) -> Iterator[dict[str, object]]:
    for case in cases:
        for series, fires in ((case.bad, True), (case.well, False)):
            up = {} if alert == "LeaseworkDown" else {"leasework_up": "1x120"}
            yield {
                "interval": "1m",
                "name": f"{alert} {'fires' if fires else 'is silent'}: {series}",
                # two endpoints that tell the same
                "input_series": [
                    {"series": from_endpoint(name, instance), "values": values}
                    for name, values in {**up, **series}.items()
                    for instance in ("web1:80", "web2:80")
                ],
                "promql_expr_test": [
                    {
                        # without annotations, which would only be repeated here
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": case.at,
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                ],
            }


def queries() -> list[str]:
    panels = json.loads(dashboard())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def promtool(*arguments: str, given: str = "") -> str:
    assert PROMTOOL
    done = subprocess.run(
        [PROMTOOL, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_promtool
def test_promtool_accepts_the_rules_that_the_command_prints(tmp_path: Path):
    file = tmp_path / "rules.yml"
    printed = CliRunner().invoke(root, ["metrics", "rules"], catch_exceptions=False)
    file.write_text(printed.output)
    assert f"{len(CASES)} rules found" in promtool("check", "rules", str(file))


@needs_promtool
def test_every_rule_fires_when_it_must_and_is_silent_when_all_is_well(tmp_path: Path):
    assert set(re.findall(r"alert: (\w+)", rules())) == set(CASES)
    (tmp_path / "rules.yml").write_text(rules())
    whole = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [test for alert, cases in CASES.items() for test in examples_of(alert, cases)],
    }
    (tmp_path / "test.json").write_text(json.dumps(whole))
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "test.json"))


_NAME = re.compile(r"leasework_[a-z_]+")


@needs_promtool
async def test_promtool_accepts_the_metrics_of_the_real_endpoint(make: Make, dsn: str):
    async with make() as inside:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await connection.execute(_MINUTE)
        text = (await inside.http.get("/metrics")).text
    assert 'leasework_job_wait_seconds_bucket{le="+Inf",queue="mail"} 9.0' in text
    assert promtool("check", "metrics", given=text) == ""


_MINUTE = """
    insert into leasework.history (at, queue, task_name, completed, wait, run)
    values (date_trunc('minute', now()), 'mail', 'send', 9, '{"20": 6, "30": 3}', '{"150": 9}')
"""


def test_every_query_counts_what_two_endpoints_tell_once():
    for query in [*queries(), *re.findall(r"expr: (>-(?:\n {10}.*)+|.*)", rules())]:
        for part in re.split(r"\bor\b", query):
            assert re.search(r"\bmax\b", part) or "absent(" in part, query


async def test_every_query_names_metrics_of_the_real_endpoint(make: Make):
    async with make() as inside:
        text = (await inside.http.get("/metrics")).text
    families = list(text_string_to_metric_families(text))
    served = {f.name for f in families} | {
        f"{f.name}_total" for f in families if f.type == "counter"
    }
    served |= {f"{f.name}_bucket" for f in families if f.type == "histogram"}
    wanted = set(_NAME.findall(" ".join(queries())))
    for expression in re.findall(r"expr: (>-(?:\n {10}.*)+|.*)", rules()):
        wanted |= set(_NAME.findall(expression))
    assert wanted and wanted <= served, wanted - served
    shown = {name.removesuffix("_bucket") for name in _NAME.findall(" ".join(queries()))}
    unused = set(METRICS) - shown
    assert not unused, f"no panel shows {unused}"


def test_labels_of_queries_exist():
    for query in [*queries(), rules()]:
        for name, inside in re.findall(r"(leasework_[a-z_]+)\{([^}]*)\}", query):
            for label in re.findall(r"(\w+)\s*[=!]~?", inside):
                assert label in METRICS[name].labels, (name, label)


def test_the_dashboard_is_one_that_grafana_can_place():
    printed = CliRunner().invoke(root, ["metrics", "dashboard"], catch_exceptions=False)
    whole = json.loads(printed.output)
    taken: set[tuple[int, int]] = set()
    for panel in whole["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["targets"], panel["title"]
    assert len({panel["id"] for panel in whole["panels"]}) == len(whole["panels"])
