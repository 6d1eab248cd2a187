"""The files of the page on deployment: they parse, and they agree with the code."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from fastapi import FastAPI
from sqlalchemy import MetaData, create_engine

from leasework import App
from leasework.cli.root import root
from leasework.web import probes
from tests.docs.steps import File, environ, steps_of
from tests.pg.test_alembic import url
from tests.support.wait import until

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "howto" / "deployment.md"
FILES = {step.name: step.text for step in steps_of(PAGE) if isinstance(step, File)}
_TYPED = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.M | re.S)


def loaded(name: str) -> Any:
    return yaml.safe_load(FILES[name])


def pod(name: str) -> Any:
    return loaded(name)["spec"]["template"]["spec"]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(FILES["shop-worker.service"])
    return parser


def commands() -> list[list[str]]:
    """Every command of leasework that the page's files run."""
    compose = loaded("compose.yaml")["services"].values()
    pods = [pod(name)["containers"][0] for name in ("worker.yaml", "web.yaml", "migrate.yaml")]
    found = [one["command"] for one in [*compose, *pods] if "command" in one]
    found.append(json.loads(re.search(r"^CMD (.*)$", FILES["Dockerfile"], re.M)[1]))  # type: ignore[index]
    found.append(shlex.split(unit()["Service"]["ExecStart"]))
    found += [
        shlex.split(step["run"])
        for step in loaded("ci.yaml")["jobs"]["test"]["steps"]
        if "run" in step
    ]
    return [words for words in found if Path(words[0]).name == "leasework"]


def typed(page: Path) -> list[list[str]]:
    """Every command of leasework that a page's reader types."""
    found = []
    for block in _TYPED.findall(page.read_text("utf-8")):
        for line in block.splitlines():
            line = line.removeprefix("$ ")
            if line.startswith("leasework "):
                line = re.split(r" [|>&]|\s#", line)[0]
                found.append(shlex.split(line.replace("[NAME]", "")))
    return found


def unknown(words: list[str]) -> str | None:
    """What the command does not take, or None."""
    command: click.Command | None = root
    context = click.Context(root)
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        below = command.get_command(context, rest[0])
        if below is None:
            return None if command is not root and command.invoke_without_command else rest[0]
        command, rest = below, rest[1:]
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    if "--" in rest:
        rest = rest[: rest.index("--")]
    return next((w for w in rest if w.startswith("-") and w.split("=")[0] not in known), None)


def test_each_command_of_the_files_is_one_of_leaseworks():
    assert len(commands()) >= 8
    assert [words for words in commands() if unknown(words)] == []


@pytest.mark.parametrize("page", sorted((DOCS / "howto").glob("*.md")), ids=lambda p: p.stem)
def test_each_command_that_a_guide_shows_is_one_of_leaseworks(page):
    assert [words for words in typed(page) if unknown(words)] == []


def test_a_command_or_an_option_that_is_not_there_is_caught():
    assert unknown(["leasework", "work", "main:app"]) == "work"
    assert unknown(["leasework", "worker", "main:app", "--process", "2"]) == "--process"
    assert unknown(["leasework", "schema", "app"]) == "app"
    assert unknown(["leasework", "lock", "x", "--", "ls", "-l"]) is None


def test_a_stop_gets_more_time_than_the_grace():
    grace = App(dsn="postgresql://x").settings.grace
    services = loaded("compose.yaml")["services"]
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) > grace + 5
    assert int(services["web"]["stop_grace_period"].removesuffix("s")) > 30 + grace
    assert pod("worker.yaml")["terminationGracePeriodSeconds"] > grace + 5
    assert pod("web.yaml")["terminationGracePeriodSeconds"] > 30 + grace
    assert int(unit()["Service"]["TimeoutStopSec"]) > grace + 5
    assert unit()["Service"]["KillMode"] == "mixed"


def test_no_single_worker_is_process_1():
    assert pod("worker.yaml")["shareProcessNamespace"]
    assert "--processes" in loaded("compose.yaml")["services"]["worker"]["command"]


def test_names_and_labels_of_the_manifests_agree():
    for name in ("worker.yaml", "web.yaml"):
        spec = loaded(name)["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    services = loaded("compose.yaml")["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)


async def test_the_web_probes_are_where_the_manifest_asks(migrated):
    app = App(migrated)
    web = FastAPI()
    web.mount("/leasework-ops", probes(app))
    container = pod("web.yaml")["containers"][0]
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(transport=transport, base_url="http://web") as client:
        for probe in ("livenessProbe", "readinessProbe"):
            assert (await client.get(container[probe]["httpGet"]["path"])).status_code == 200
    await app.close()


def test_the_workers_probe_sees_the_worker_of_its_own_pod(migrated, procs, tmp_path):
    [ask] = [pod("worker.yaml")["containers"][0]["readinessProbe"]["exec"]["command"]]
    host = os.uname().nodename

    def ready(hostname: str) -> bool:
        given = {**os.environ, **environ(migrated), "HOSTNAME": hostname}
        return subprocess.run(ask, env=given, timeout=60).returncode == 0

    assert not ready(host)
    (tmp_path / "main.py").write_text("from leasework import App\napp = App()\n")
    procs.start(
        "-m", "leasework", "worker", "main:app",
        env={"LEASEWORK_DSN": migrated, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )  # fmt: skip
    until(lambda: ready(host), 60, "the worker is registered")
    assert not ready("another-pod")


def test_autogenerate_with_the_pages_filter_leaves_leaseworks_tables_alone(migrated):
    code = re.search(r"^(def include_name.*?)\n\n", PAGE.read_text("utf-8"), re.M | re.S)
    assert code
    there: dict[str, Any] = {}
    exec(code[1], there)

    engine = create_engine(url(migrated), connect_args={"options": "-c search_path=public"})

    def differences(**options: Any) -> list[Any]:
        with engine.connect() as connection:
            return compare_metadata(
                MigrationContext.configure(connection, opts=options), MetaData()
            )

    assert differences() == []
    assert differences(include_schemas=True)  # it would drop them
    assert differences(include_schemas=True, include_name=there["include_name"]) == []
