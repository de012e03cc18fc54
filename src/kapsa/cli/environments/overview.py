"""`kapsa environments ls`: a table of environments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from kapsa.cli.environments.options import ClusterChoice, EnvironmentFilter, Selector
from kapsa.cli.environments.selection import select
from kapsa.cli.environments.session import Session, run
from kapsa.cli.tables import (
    OutputFormat,
    OutputOption,
    format_age,
    format_duration,
    print_document,
    print_table,
)
from kapsa.environments.resources import Environment

__all__ = ["expires_in", "ls", "ready_reason", "source_of"]

_HEADERS = ("NAME", "PROJECT", "SOURCE", "COMMIT", "PHASE", "REASON", "EXPIRES", "AGE", "URL")


def ls(
    chosen: EnvironmentFilter,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the environments of all namespaces.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
    *,
    cluster: ClusterChoice,
) -> None:
    """List the environments of a namespace and of the Projects in it.

    \b
    Examples:
      kapsa environments ls
      kapsa environments ls --project shop --branch feature/cart
      kapsa environments ls -A -o json
    """

    async def work(session: Session) -> Sequence[Environment]:
        return await select(session, Selector(**msgspec.structs.asdict(chosen)), everywhere=everywhere)

    selected = run(cluster, work)
    if output is OutputFormat.TABLE:
        _print_table(selected)
    elif output is OutputFormat.NAME:
        for each in selected:
            typer.echo(each.name)
    else:
        items = [each.to_dict() for each in selected]
        print_document({"apiVersion": "v1", "kind": "List", "items": items}, output)


def _print_table(environments: Sequence[Environment]) -> None:
    now = datetime.now(UTC)
    # The name of an environment is unique within its project only.
    several = len({each.namespace for each in environments}) > 1
    rows = [(*([each.namespace] if several else []), *_row(each, now)) for each in environments]
    headers = (*(["NAMESPACE"] if several else []), *_HEADERS)
    print_table(
        headers, rows, empty="no environments; `kapsa environments ls -A` lists those of all namespaces"
    )


def _row(environment: Environment, now: datetime) -> tuple[str, ...]:
    return (
        environment.name,
        environment.spec.project_ref.name,
        source_of(environment),
        environment.spec.source.commit_sha[:8],
        environment.status.phase,
        ready_reason(environment),
        expires_in(environment, now),
        format_age(environment.metadata.creation_timestamp, now),
        environment.status.url or "",
    )


def source_of(environment: Environment) -> str:
    """Return the pull request or the branch of an environment."""
    source = environment.spec.source
    return f"pr {source.pr_number}" if source.pr_number is not None else source.branch or ""


def ready_reason(environment: Environment) -> str:
    """Return the reason of the condition `Ready`; empty before the operator has seen the environment."""
    ready = environment.status.condition("Ready")
    return ready.reason if ready is not None else ""


def expires_in(environment: Environment, now: datetime) -> str:
    """Return the time until an environment expires; `never` without a TTL."""
    moment = environment.status.expires_at
    return "never" if moment is None else format_duration((moment - now).total_seconds())
