"""The commands that show and change the flow of jobs: queues and limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from leasework.cli.asking import (
    act,
    acting_options,
    has_subcommand,
    limit_option,
    show_rows,
    table_options,
    together,
)
from leasework.cli.fitting import Column
from leasework.cli.tables import seconds
from leasework.model.moments import rate_text

if TYPE_CHECKING:
    from leasework.watch.operator import Operator

_QUEUES = [
    Column("queue", lambda row: row["queue"], cut=16),
    Column("paused", lambda row: "paused" if row["paused"] else None),
    Column("available", lambda row: row["available"]),
    Column("running", lambda row: row["running"]),
    Column("limited", lambda row: row["limited"]),
    Column("oldest due", seconds("oldest_seconds"), rank=1),
]


@click.group(invoke_without_command=True)
@table_options
def queues(**_: Any) -> None:
    """List queues with their jobs, pause or resume them, or change a tenant's weight.

    Available jobs wait for a slot: up to 50,000 are counted. Limited jobs wait for their limits: up
    to 10,000.
    """
    if not has_subcommand():
        show_rows(act(lambda acting: acting.queues.all()), _QUEUES, "No queues.")


_on_queue = together(
    click.argument("name"),
    click.option("--task", "is_task", is_flag=True, help="NAME is a task, of any queue."),
    acting_options,
)


def _pause(name: str, is_task: bool, verb: str) -> None:
    async def work(acting: Operator) -> bool:
        control = acting.tasks if is_task else acting.queues
        changed: bool = await getattr(control, verb)(name)
        return changed

    what = f"The {'task' if is_task else 'queue'} {name}"
    if not act(work):
        click.echo(f"{what} was {'already' if verb == 'pause' else 'not'} paused.")
    elif verb == "pause":
        click.echo(f"{what} is paused: none of its jobs starts until you resume it.")
    else:
        click.echo(f"{what} starts jobs again.")


@queues.command("pause")
@_on_queue
def pause_queue(name: str, is_task: bool, **_: Any) -> None:
    """Start no job of a queue or task; running jobs continue."""
    _pause(name, is_task, "pause")


@queues.command("resume")
@_on_queue
def resume_queue(name: str, is_task: bool, **_: Any) -> None:
    """Start the jobs of a paused queue or task again."""
    _pause(name, is_task, "resume")


@queues.command("weight")
@click.argument("name")
@click.argument("tenant")
@click.argument("weight", type=float, required=False)
@acting_options
def set_weight(name: str, tenant: str, weight: float | None, **_: Any) -> None:
    """Set the share of TENANT in the fair queue NAME. Without WEIGHT, return to what the code
    says."""
    act(lambda acting: acting.queues.set_weight(name, tenant, weight))
    click.echo(f"The weight of {tenant} in {name} is " + ("reset." if weight is None else "set."))


def _effective(
    name: str, shown: Callable[[float], str] = "{:g}".format
) -> Callable[[dict[str, Any]], Any]:
    """What holds: what a person set, marked by a star, or what the code says."""

    def value(row: dict[str, Any]) -> Any:
        if row[f"set_{name}"] is not None:
            return f"{shown(row[f'set_{name}'])}*"
        return None if row[name] is None else shown(row[name])

    return value


_LIMITS = [
    Column("limit", lambda row: row["name"], cut=16),
    Column("concurrency", _effective("concurrency")),
    Column("rate", _effective("rate", rate_text)),
    Column("burst", _effective("burst"), rank=2),
    Column("paused", lambda row: "paused" if row["paused"] else None),
    Column("running", lambda row: row["running"]),
    Column("waiting", lambda row: row["waiting"]),
    Column("oldest due", seconds("oldest_seconds"), rank=1),
    Column("keys changed", lambda row: row["keys_set"] or None, rank=3),
    Column("keys throttled", lambda row: row["keys_closed"] or None, rank=4),
]
_KEYS = [
    Column("key", lambda row: row["key"] or "(all)", cut=24),
    Column("concurrency", lambda row: row["set_concurrency"]),
    Column("paused", lambda row: "paused" if row["paused"] else None),
    Column("throttled until", lambda row: row["closed_until"], rank=1),
    Column("running", lambda row: row["running"]),
    Column("waiting", lambda row: row["waiting"]),
    Column("oldest due", lambda row: row["oldest"], rank=2),
]


@click.group(invoke_without_command=True)
@table_options
def limits(**_: Any) -> None:
    """List limits, or change, pause and reset them. A star marks what a person has set."""
    if not has_subcommand():
        found = act(lambda acting: acting.limits.all())
        show_rows([structs.asdict(row) for row in found], _LIMITS, "No limits.")


@limits.command("keys")
@click.argument("name")
@limit_option(50)
@table_options
def list_keys(name: str, limit: int, **_: Any) -> None:
    """List the keys of a limit that a person changed, and the busiest."""
    found = act(lambda acting: acting.limits.keys(name, limit))
    show_rows([structs.asdict(row) for row in found], _KEYS, "No keys.")


_on_limit = together(
    click.argument("name"),
    click.option("--key", metavar="KEY", help="Only this key of the limit."),
    acting_options,
)


def _act(work: Callable[[Operator], Awaitable[None]], name: str, key: str | None, did: str) -> None:
    act(work)
    click.echo(f"The limit {name}{'' if key is None else f', key {key},'} {did}.")


@limits.command("set")
@click.option("--concurrency", type=int, help="How many jobs run at once.")
@click.option("--rate", "count", type=float, help="How many start in --per seconds.")
@click.option("--per", type=float, help="Seconds; required with --rate.")
@click.option("--burst", type=float, help="How many start at once after idleness.")
@_on_limit
def set_limit(
    name: str,
    key: str | None,
    concurrency: int | None,
    count: float | None,
    per: float | None,
    burst: float | None,
    **_: Any,
) -> None:
    """Change a limit, or the concurrency of one key, until it is reset."""
    from leasework.model.limits import Rate

    if count is None and concurrency is None:
        raise click.UsageError("Give --concurrency, or --rate and --per.")
    if (count is None) != (per is None):
        raise click.UsageError("--rate and --per go together: --rate 3 --per 900")
    rate = None if count is None or per is None else Rate(count, per, burst)
    _act(
        lambda acting: acting.limits.set(name, concurrency=concurrency, rate=rate, key=key),
        name,
        key,
        "is changed until you reset it",
    )


@limits.command("reset")
@_on_limit
def reset_limit(name: str, key: str | None, **_: Any) -> None:
    """Return to what the code says, and resume: the limit with all its keys, or one key."""
    _act(lambda on: on.limits.reset(name, key=key), name, key, "is as in the code")


@limits.command("pause")
@_on_limit
def pause_limit(name: str, key: str | None, **_: Any) -> None:
    """Start no job of a limit, or of one key."""
    _act(lambda on: on.limits.pause(name, key=key), name, key, "is paused")


@limits.command("resume")
@_on_limit
def resume_limit(name: str, key: str | None, **_: Any) -> None:
    """Start the jobs of a paused limit or key again."""
    _act(lambda on: on.limits.resume(name, key=key), name, key, "starts jobs again")
