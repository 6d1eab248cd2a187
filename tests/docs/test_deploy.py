"""The files of deploy/ agree with the code, with each other, and with the page that shows them."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from leasework import App
from leasework.cli.root import root
from leasework.pg.schema.roles import ROLES
from leasework.version import VERSION
from leasework.watch.metric_names import HISTOGRAM, METRICS
from scripts import included
from tests.arch import tree
from tests.docs.test_deployment import unknown

DEPLOY = tree.ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SETTINGS = (tree.ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
RESERVE_SECONDS = 5


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"])


def objects(kind: str) -> dict[str, Any]:
    """The manifests' objects of this kind, by name."""
    loaded = [one for path in KUBERNETES for one in yaml.safe_load_all(path.read_text("utf-8"))]
    return {one["metadata"]["name"]: one["spec"] for one in loaded if one["kind"] == kind}


def pods() -> dict[str, Any]:
    found = {**objects("Deployment"), **objects("Job")}
    return {name: spec["template"]["spec"] for name, spec in found.items()}


def containers() -> dict[str, Any]:
    return {name: pod["containers"][0] for name, pod in pods().items()}


def unit(path: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text("utf-8"))
    return parser["Service"]


def commands() -> Iterator[list[str]]:
    yield from (one["command"] for one in compose().values() if "command" in one)
    yield from (one["command"] for one in containers().values())
    yield from (shlex.split(unit(path)["ExecStart"]) for path in UNITS)
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    yield json.loads(re.findall(r"^CMD (.*)$", dockerfile, re.M)[0])


def variables() -> set[str]:
    """Every variable that a file sets for a process."""
    found = {name for one in compose().values() for name in one.get("environment", {})}
    found |= {variable["name"] for one in containers().values() for variable in one.get("env", [])}
    return {name for name in found if name.startswith("LEASEWORK")}


def unknown_metrics(text: str) -> list[str]:
    """Names and labels of metrics that leasework does not have."""
    wrong = []
    roles = {f"leasework_{role}" for role in ROLES}
    for name in set(re.findall(r"\bleasework_[a-z_]+\b", text)) - roles:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        if name not in METRICS and not (base in METRICS and METRICS[base].kind == HISTOGRAM):
            wrong.append(name)
    for labels, name in re.findall(r"by \(([\w, ]+)\) \((leasework_\w+)", text):
        has = METRICS[name].labels if name in METRICS else ()
        wrong += [f"{name}: {label}" for label in labels.split(", ") if label not in has]
    return wrong


def test_the_page_shows_the_files_as_they_are():
    for page in included.PAGES:
        text = page.read_text("utf-8")
        assert text == included.included(text), "run: make reference"
    shown = re.findall(r'title="([^"]+)"', included.PAGES[0].read_text("utf-8"))
    assert {"Dockerfile", "compose.yaml", "worker.yaml", "scale.yaml"} <= set(shown)
    assert "FROM python" in included.included('```dockerfile title="Dockerfile"\nold\n```\n')


def test_the_readme_of_the_folder_names_every_file():
    text = (DEPLOY / "README.md").read_text("utf-8")
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix != ".whl" and path.name != "README.md":
            name = path.relative_to(DEPLOY)
            assert f"`{name.as_posix()}`" in text or f"`{name.parts[0]}`" in text, name


def test_each_command_is_one_of_leaseworks():
    ours = [words for words in commands() if Path(words[0]).name == "leasework"]
    assert len(ours) >= 9
    assert [words for words in ours if unknown(words)] == []


def test_each_variable_is_one_of_leaseworks():
    known = set(re.findall(r"^\|[^\n]*?`(LEASEWORK_\w+)`", SETTINGS, re.M))
    assert {"LEASEWORK_DSN", "LEASEWORK_RELEASE", "LEASEWORK_WEB_TOKEN"} <= variables() <= known


def test_each_metric_is_one_of_leaseworks():
    page = included.PAGES[0].read_text("utf-8")
    texts = [path.read_text("utf-8") for path in [*KUBERNETES, DEPLOY / "README.md"]]
    assert [wrong for text in [*texts, page] for wrong in unknown_metrics(text)] == []


def test_a_metric_or_a_label_that_is_not_there_is_caught():
    assert unknown_metrics("sum(leasework_queue_redy)") == ["leasework_queue_redy"]
    assert unknown_metrics("max by (q) (leasework_queue_ready)") == ["leasework_queue_ready: q"]
    assert unknown_metrics("rate(leasework_job_wait_seconds_bucket[5m])") == []


def test_workers_grow_by_the_due_jobs_and_never_vanish():
    (scaled,) = objects("ScaledObject").values()
    assert scaled["scaleTargetRef"]["name"] in objects("Deployment")
    assert 1 <= scaled["minReplicaCount"] < scaled["maxReplicaCount"]
    (trigger,) = scaled["triggers"]
    query = trigger["metadata"]["query"]
    assert trigger["type"] == "prometheus"
    assert re.fullmatch(r"sum\(max by \(queue\) \(leasework_queue_ready\)\)", query)


def port_of(command: list[str]) -> int | None:
    """The port on which a command listens, or None."""
    if command[0] == "gunicorn":
        return int(command[command.index("-b") + 1].rpartition(":")[2])
    if command[:2] == ["leasework", "web"]:
        default = {p.name: p.default for p in root.commands["web"].params}["port"]
        return int(command[command.index("--port") + 1] if "--port" in command else default)
    return None


def test_probes_and_services_ask_where_the_process_listens():
    mounted = re.findall(r'web\.mount\("(.*)", probes', (DEPLOY / "main.py").read_text("utf-8"))
    assert mounted == ["/leasework-ops"]
    for name, container in containers().items():
        port = port_of(container["command"])
        assert [one["containerPort"] for one in container.get("ports", [])] == [port] * bool(port)
        below = mounted[0] if container["command"][0] == "gunicorn" else ""
        for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            if port:
                assert container[probe]["httpGet"] == {"path": below + path, "port": port}, name
    for name, service in objects("Service").items():
        (mapped,) = service["ports"]
        assert mapped["targetPort"] == port_of(containers()[name]["command"])
    for service in compose().values():
        for mapping in service.get("ports", []):
            assert int(mapping.rpartition(":")[2]) == port_of(service["command"])
        if "healthcheck" in service and "command" in service:
            (asked,) = re.findall(r"http://[^']+", service["healthcheck"]["test"][-1])
            below = mounted[0] if service["command"][0] == "gunicorn" else ""
            assert asked == f"http://127.0.0.1:{port_of(service['command'])}{below}/readyz"


def test_a_dashboard_that_others_can_reach_has_a_login():
    given = [
        (one["command"], set(one["environment"])) for one in compose().values() if "command" in one
    ]
    given += [(one["command"], {v["name"] for v in one["env"]}) for one in containers().values()]
    found = [names for command, names in given if command[:2] == ["leasework", "web"]]
    assert len(found) == 2 and all("LEASEWORK_WEB_TOKEN" in names for names in found)
    for path in UNITS:
        assert "--host" not in unit(path)["ExecStart"]


def test_a_stop_gets_more_time_than_the_grace():
    grace = App(dsn="postgresql://x").settings.grace
    for name, pod in pods().items():
        container = pod["containers"][0]
        stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        before = int(stop[1]) if stop else 0
        allowed = pod.get("terminationGracePeriodSeconds", 30)
        needed = {"gunicorn": 30 + grace, "worker": grace + RESERVE_SECONDS}
        kind = container["command"][0 if container["command"][0] == "gunicorn" else 1]
        assert allowed > before + needed.get(kind, 0), name
    for path in UNITS:
        service = unit(path)
        if " worker " in service["ExecStart"]:
            assert int(service["TimeoutStopSec"]) > grace + RESERVE_SECONDS
            assert service["KillMode"] == "mixed"


def test_selectors_find_the_pods():
    labels = {n: s["template"]["metadata"]["labels"] for n, s in objects("Deployment").items()}
    for name, spec in objects("Deployment").items():
        assert spec["selector"]["matchLabels"] == labels[name]
    for name, spec in objects("PodDisruptionBudget").items():
        assert spec["selector"]["matchLabels"] == labels[name]
        assert objects("Deployment")[name]["replicas"] > spec["maxUnavailable"]
    for name, spec in objects("Service").items():
        assert spec["selector"] == labels[name]


def test_all_manifests_are_of_one_release_and_of_an_ordinary_account():
    assert len({container["image"] for container in containers().values()}) == 1
    for name, container in containers().items():
        tag = container["image"].rpartition(":")[2]
        releases = [v["value"] for v in container["env"] if v["name"] == "LEASEWORK_RELEASE"]
        assert releases in ([], [tag]), name
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert pods()[name]["securityContext"]["runAsNonRoot"] is True


def test_the_image_has_an_init_process_and_an_ordinary_account():
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert re.search(r'^ENTRYPOINT \["tini", "--"\]$', text, re.M)
    (user,) = re.findall(r"^USER (\d+)$", text, re.M)
    assert int(user) > 0 and f"--uid {user} " in text
    assert text.index("USER ") > text.index("RUN pip")


def test_the_image_gets_this_version():
    text = (DEPLOY / "requirements.txt").read_text("utf-8")
    assert f"./wheels/leasework-{VERSION}-py3-none-any.whl[web,prometheus]" in text
    assert set(re.findall(r"leasework\S*?(\d+\.\d+\.\d+)", text)) == {VERSION}


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.stem)
def test_a_unit_starts_again_after_a_crash_and_runs_as_an_ordinary_account(path: Path):
    service = unit(path)
    assert service["Restart"] == "on-failure" and service["User"] == "shop"
    assert service["EnvironmentFile"].startswith("/etc/")
