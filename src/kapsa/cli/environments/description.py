"""`kapsa environments describe`: the state of one environment, what is wrong with it, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import typer

from kapsa.cli.environments.options import ClusterChoice, Selector
from kapsa.cli.environments.overview import expires_in, ready_reason, source_of
from kapsa.cli.environments.selection import select_one
from kapsa.cli.environments.session import Session, run
from kapsa.cli.tables import (
    OutputFormat,
    OutputOption,
    format_age,
    format_table,
    print_document,
    print_fields,
    printable,
)
from kapsa.environments.resources import Environment
from kapsa.runtime import Forbidden

__all__ = ["describe"]

_EVENTS_SHOWN = 10


def describe(
    selector: Selector,
    output: OutputOption = OutputFormat.TABLE,
    *,
    cluster: ClusterChoice,
) -> None:
    """Show an environment: its state, the cause of a failure, its last events, and what to do next.

    \b
    Examples:
      kapsa environments describe cart
      kapsa environments describe --project shop --pr 42
    """

    async def work(session: Session) -> tuple[Environment, list[dict[str, Any]]]:
        environment = await select_one(session, selector)
        return environment, await _events(session, environment)

    environment, events = run(cluster, work)
    if output is OutputFormat.TABLE:
        _print(environment, events)
    elif output is OutputFormat.NAME:
        typer.echo(environment.name)
    else:
        print_document({"environment": environment.to_dict(), "events": events}, output)


async def _events(session: Session, environment: Environment) -> list[dict[str, Any]]:
    """Return the last events of an environment, the oldest first."""
    selector = f"involvedObject.uid={environment.metadata.uid}"
    try:
        listed = await session.client.list(
            "v1/Event", namespace=environment.namespace, field_selector=selector
        )
    except Forbidden:
        typer.echo(f"kapsa: you may not see the events in namespace {environment.namespace}", err=True)
        return []
    return sorted(listed.items, key=_time_of)[-_EVENTS_SHOWN:]


def _time_of(event: dict[str, Any]) -> str:
    """Return when an event was last seen, as text that sorts by time."""
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")


def _print(environment: Environment, events: Sequence[dict[str, Any]]) -> None:
    now = datetime.now(UTC)
    status = environment.status
    suspended = " (suspended)" if environment.spec.suspended else ""
    print_fields(
        [
            ("Name", environment.name),
            ("Namespace", environment.namespace),
            ("Project", environment.spec.project_ref.name),
            ("Source", source_of(environment)),
            ("Commit", environment.spec.source.commit_sha),
            ("Deployed", status.commit_sha),
            ("Image", status.image),
            ("Phase", f"{status.phase}{suspended} {ready_reason(environment)}".rstrip()),
            ("URL", status.url),
            ("Pods in", status.namespace.name if status.namespace is not None else ""),
            ("Expires in", expires_in(environment, now)),
            ("Age", format_age(environment.metadata.creation_timestamp, now)),
        ]
    )
    _print_conditions(environment)
    _print_failure(environment)
    _print_events(events, now)
    if advice := _next(environment):
        typer.echo(f"\nNext: {advice}")


def _print_conditions(environment: Environment) -> None:
    rows = [
        (each.type, each.status, each.reason, each.message.partition("\n")[0])
        for each in environment.status.conditions
    ]
    if rows:
        typer.echo("\n" + format_table(("CONDITION", "STATUS", "REASON", "MESSAGE"), rows))


def _print_failure(environment: Environment) -> None:
    failure = environment.status.failure
    if failure is None:
        return
    where = f" ({printable(failure.object)})" if failure.object else ""
    typer.echo(f"\nFailed in step {failure.step}{where}: {printable(failure.message)}")
    for line in failure.log_tail.splitlines():
        typer.echo(f"  | {printable(line)}")


def _print_events(events: Sequence[dict[str, Any]], now: datetime) -> None:
    rows = [
        (_age(event, now), event.get("type", ""), event.get("reason", ""), event.get("message", ""))
        for event in events
    ]
    if rows:
        typer.echo("\n" + format_table(("AGE", "EVENT", "REASON", "MESSAGE"), rows))


def _age(event: dict[str, Any], now: datetime) -> str:
    try:
        return format_age(datetime.fromisoformat(_time_of(event)), now)
    except ValueError:
        return ""


def _next(environment: Environment) -> str:
    """Return what a person can do about the state of the environment."""
    name, where = environment.name, f"-n {environment.namespace}"
    if ready_reason(environment) == "ApprovalRequired":
        return f"read the commit, then `kapsa environments approve {name} {where}`"
    if environment.spec.suspended:
        return f"`kapsa environments wake {name} {where}` starts it again"
    failure = environment.status.failure
    return printable(failure.hint) if failure is not None else ""
