"""Writes docs/reference from the code: the API, settings, errors, the command, the views.

python -m scripts.reference            # needs leasework[test]: the views come from a server
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click
import psycopg

from leasework import config, errors
from leasework.cli.monitoring import alert_name
from leasework.cli.root import root
from leasework.config import Settings
from leasework.pg.schema import migrate
from leasework.telemetry import CATALOGUE
from leasework.watch.checks import CHECKS, KINDS, Check
from leasework.watch.finding import NOTE
from leasework.watch.metric_names import METRICS
from scripts import reference_api

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NONE = "-"
_MADE = "<!-- Made by `make reference` from the code: change it there. -->"

_VIEWS = {
    "jobs": "Every job that waits or runs, and every finished job that is kept, with its state.",
    "nodes": "The nodes that take part now.",
    "leaders": "Every election and who holds it, the application's own leader included.",
    "schedules": "Every schedule, its next moment, and the outcome of its last one.",
    "ticks": "The ledger: the decision for each due moment.",
    "deadlines": "Deadlines and their verdicts.",
    "locks": "Locks: leases and advisory locks, their holders and who waits for them.",
    "events": "Events: lost leases, missed ticks, refused writes, actions of people.",
    "workers": "The readable id of each node, also of dead ones.",
}


def page(title: str, intro: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _MADE, intro, *parts]) + "\n"


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _prose(text: str | None) -> str:
    """Convert a docstring to Markdown."""
    text = " ".join((text or "").split())
    text = re.sub(r":\w+:`~?([\w.]+)`", lambda m: f"`{m[1].removeprefix('leasework.')}`", text)
    return text.replace("``", "`")


# -- settings --------------------------------------------------------------------------------------
def settings_page() -> str:
    told = _field_docs(inspect.getsource(config))
    plain = [f for f in fields(Settings) if f.default is not MISSING]
    rows = [
        [
            f"`{f.name}`", f"`LEASEWORK_{f.name.upper()}`", _default(f.default),
            _prose(told["Settings", f.name]),
        ]
        for f in plain
    ]  # fmt: skip
    groups = []
    examples = {
        config.Limits: "max_crashes=5",
        config.Polling: "stage=0.5",
        config.Retention: "finished_days=30",
    }
    for kind in examples:
        name = kind.__name__.lower()
        lines = [
            [f"`{f.name}`", _default(f.default), _prose(told[kind.__name__, f.name])]
            for f in fields(kind)
        ]
        groups += [
            f"## {kind.__name__}",
            _prose(kind.__doc__),
            f"```python\nfrom leasework import App, {kind.__name__}\n\n"
            f"app = App({name}={kind.__name__}({examples[kind]}))\n```",
            table(["name", "default", "meaning"], lines),
        ]
    return page(
        "Settings",
        "Each setting is an argument of `App` and an environment variable. The argument wins. "
        "Where a setting is in seconds, the argument may be a `timedelta`. An "
        "unknown argument, or an unknown variable whose name begins with `LEASEWORK_`, raises "
        "ConfigError, which names the nearest known one.",
        table(["argument", "environment", "default", "meaning"], rows),
        "## Other environment variables",
        table(
            ["variable", "meaning"],
            [[f"`{name}`", meaning] for name, meaning in config.OTHER_VARIABLES.items()],
        ),
        "Variables that Kubernetes sets for a service named `leasework`, such as "
        "`LEASEWORK_SERVICE_HOST` and `LEASEWORK_PORT_5432_TCP`, are ignored.",
        "## What follows from recover_within",
        "`recover_within` is the only setting for time in the lease protocol: a job of a dead node "
        "runs again within this time, even if the leader died with the node. It may be "
        f"{config.MIN_RECOVER_WITHIN:g} to {config.MAX_RECOVER_WITHIN:g} seconds. All values are "
        "in seconds; [Timings](../explanation/timings.md) explains them.",
        _timings(told),
        *groups,
    )


def _timings(told: dict[tuple[str, str], str]) -> str:
    columns = [config.Timings.derive(seconds) for seconds in (9.0, 15.0, 30.0, 60.0, 120.0)]
    rows = []
    for name in ("lease", "renew", "trust", "call_timeout", "grace", "failover"):
        meaning = told.get(("Timings", name), "") or _prose(
            getattr(config.Timings, name).__doc__ if hasattr(config.Timings, name) else ""
        )
        rows.append([f"`{name}`", *[f"{getattr(t, name):.2f}" for t in columns], _prose(meaning)])
    heads = ["recover_within", *[f"{t.recover_within:g}" for t in columns], "meaning"]
    return table(heads, rows)


def _default(value: Any) -> str:
    if value == "":
        return NONE
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _field_docs(source: str) -> dict[tuple[str, str], str]:
    """Return the docstrings of fields, by class and field."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for line, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                text = ""
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    text = str(after.value.value)
                found[node.name, line.target.id] = text
    return found


# -- errors ----------------------------------------------------------------------------------------
def errors_page() -> str:
    return page(
        "Errors",
        "All errors are in `leasework.errors`. Catch them by class: the names are stable. A "
        "message says what happened, what leasework got, and what to do.",
        "\n".join(_errors(errors.LeaseworkError, 0)),
    )


def _errors(kind: type, depth: int) -> Iterator[str]:
    yield f"{'    ' * depth}- `{kind.__name__}`: {_prose(kind.__doc__)}"
    for below in sorted(kind.__subclasses__(), key=lambda k: inspect.getsourcelines(k)[1]):
        if below.__module__ == errors.__name__ and below.__bases__[0] is kind:
            yield from _errors(below, depth + 1)


# -- the command -----------------------------------------------------------------------------------
def cli_page() -> str:
    parts = [part for path, command in _commands() for part in _command(path, command)]
    return page(
        "The command",
        "`leasework VERB`. Most verbs that read have `--json`. Exit status 0: success. 1: "
        "something is wrong; the output says what. 2: wrong usage. 141: the reader of the output, "
        "such as `head`, has closed the pipe. If the encoding of the output lacks a character, its "
        "escape is printed.",
        *parts,
    )


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(root)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for below, sub in sorted(command.commands.items()):
                yield f"{name} {below}", sub


def _command(path: str, command: click.Command) -> Iterator[str]:
    level = "##" if " " not in path else "###"
    with click.Context(command, info_name=f"leasework {path}") as context:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"{level} leasework {path}"
        yield f"```text\nleasework {path} {usage}\n```"
        help_text = inspect.cleandoc(command.help or "").split("\f")[0].replace("\b\n", "")
        for paragraph in help_text.split("\n\n"):
            yield _prose(paragraph)
        rows = []
        for parameter in command.get_params(context):
            record = parameter.get_help_record(context)
            if record and "--help" not in record[0]:
                rows.append([f"`{record[0]}`", record[1]])
    if rows:
        yield table(["option", "meaning"], rows)


# -- views -----------------------------------------------------------------------------------------
async def views_page(dsn: str) -> str:
    """Describe the views. ``dsn`` is a database with the schema."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute(
            "select c.relname, a.attname, format_type(a.atttypid, a.atttypmod) "
            "from pg_attribute a join pg_class c on c.oid = a.attrelid "
            "where c.relnamespace = 'leasework'::regnamespace and c.relkind = 'v' "
            "and a.attnum > 0 order by c.relname, a.attnum"
        )
        columns: dict[str, list[list[str]]] = {}
        for view, column, kind in await cursor.fetchall():
            columns.setdefault(view, []).append([f"`{column}`", kind])
    parts = []
    for view in [*_VIEWS, *sorted(columns.keys() - _VIEWS.keys())]:
        parts += [f"## leasework.{view}", _VIEWS.get(view, "")]
        parts.append(table(["column", "type"], columns[view]))
    return page(
        "Views and SQL",
        "The views are the public interface for people and other tools. New versions may add "
        "columns, but do not change them. The tables behind the views are private.\n\n"
        "To enqueue from SQL, triggers and other languages, call "
        "`select * from leasework.enqueue(jsonb)`. It takes one object or an array of objects with "
        "`task`, `payload` and the options of `task.using(…)`, and returns `id` and `created` for "
        "each. It does not know the options of `@app.task`, so name the queue and the others.",
        *[part for part in parts if part],
    )


def events_page() -> str:
    rows = [
        [
            f"`{name}`",
            kind.level,
            kind.meaning,
            ", ".join(f"`{field}`" for field in kind.fields) or NONE,
            # deadline events are written by the same statement as the verdict
            "yes" if kind.stored or name.startswith("deadline_") else "no",
        ]
        for name, kind in CATALOGUE.items()
    ]
    return page(
        "Events",
        "Every event but `deadline_late` is a log line. A *stored* event is also a row of "
        "`leasework.events` and is counted in `leasework_events_total`. Names and fields are "
        "public: new versions may add some, but do not change them.",
        table(["event", "level", "meaning", "fields", "stored"], rows),
    )


def metrics_page() -> str:
    rows = [
        [f"`{name}`", known.kind, ", ".join(f"`{x}`" for x in known.labels) or NONE, known.meaning]
        for name, known in METRICS.items()
    ]
    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
    return page(
        "Metrics",
        "`/metrics` serves these metrics; see [Metrics and alerts](../howto/metrics.md). Names and "
        "labels are public: new versions may add some, but do not change them.",
        table(["metric", "type", "labels", "meaning"], rows),
        f"The kinds of `leasework_problems` and `leasework_notes` are {kinds}. "
        "[Checks](checks.md) describes each.",
    )


def checks_page() -> str:
    parts = []
    for check in CHECKS.values():
        parts += [
            f"## {check.kind}",
            check.meaning,
            f"*What helps:* {check.advice}.",
            f"Level: {check.level}. {_alert(check)}",
        ]
    return page(
        "Checks",
        "`leasework status`, the dashboard, the metric `leasework_problems` and the alerts report "
        "the same checks. Each check has a stable kind. A *problem* makes `leasework status` exit "
        "with 1. A check of the severity *info* is only a note. `leasework doctor` makes the same "
        "checks and adds those of the set-up, which have no metric and no alert. The shares and "
        "times at which a check reports something are constants in `leasework/config.py`.",
        *parts,
    )


def _alert(check: Check) -> str:
    if check.setup:
        return "Only [`leasework doctor`](../howto/doctor.md) reports it."
    if check.level == NOTE:
        return "No alert."
    after = "" if check.alert_after == "0s" else f", after {check.alert_after}"
    return f"Alert: `{alert_name(check.kind)}` ({check.alert}{after})."


async def pages(dsn: str) -> dict[str, str]:
    """Return the pages: file name -> text."""
    return {
        "api.md": page("Python API", reference_api.INTRO, *reference_api.body()),
        "settings.md": settings_page(),
        "errors.md": errors_page(),
        "cli.md": cli_page(),
        "views.md": await views_page(dsn),
        "events.md": events_page(),
        "metrics.md": metrics_page(),
        "checks.md": checks_page(),
    }


def on_server(dsn: str) -> dict[str, str]:
    """Return the pages. The views are read from a new database on that server."""
    from tests.support import postgres as servers

    async def made(fresh: str) -> dict[str, str]:
        await migrate.apply(Settings(dsn=fresh))
        return await pages(fresh)

    with servers.database(dsn) as fresh:
        return asyncio.run(made(fresh))


def main() -> None:
    from tests.support import postgres as servers

    with servers.server() as server:
        FOLDER.mkdir(exist_ok=True)
        for name, text in on_server(server.dsn).items():
            (FOLDER / name).write_text(text, "utf-8")
            print(f"docs/reference/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
