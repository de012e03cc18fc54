"""`kapsa fleet audit`: read the audit log over the API, and check it in the database."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from kapsa.cli.fleet.people.inputs import past_moment
from kapsa.cli.fleet.people.lists import LimitOption, ListView, show_list
from kapsa.cli.fleet.session import read_settings, with_database
from kapsa.cli.tables import OutputFormat, OutputOption
from kapsa.fleet.orchestrator.audit import AuditRecord

if TYPE_CHECKING:
    from kapsa.fleet.infrastructure.audit.verifier import AuditReport
    from kapsa.fleet.infrastructure.postgres.database import Database

__all__ = ["app"]

_WIDEST = 100
"""Characters of an entry's details in a table; `-o json` has all."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Read and check the audit log.")


@app.callback()
def audit() -> None:
    """Read and check the audit log."""


def _row(record: AuditRecord, now: datetime) -> tuple[object, ...]:
    payload = msgspec.json.encode(record.payload or {}).decode()
    return (
        f"{record.recorded_at:%Y-%m-%dT%H:%M:%SZ}",
        record.actor if record.actor is not None else "(erased)",
        record.action,
        f"{record.object_kind}/{record.object_id}",
        payload if len(payload) <= _WIDEST else f"{payload[: _WIDEST - 1]}…",
    )


_RECORDS = ListView(
    AuditRecord,
    ("TIME", "ACTOR", "ACTION", "OBJECT", "DETAILS"),
    _row,
    "there are no such entries",
    name="id",
)


@app.command("ls")
def list_entries(
    actor: Annotated[str, typer.Option(help="Only entries of this subject.")] = "",
    action: Annotated[str, typer.Option(help="Only entries of this action, such as cluster.register.")] = "",
    kind: Annotated[str, typer.Option(help="Only entries about this kind of object, such as cluster.")] = "",
    object_id: Annotated[
        str, typer.Option("--object", help="Only entries about the object with this id.")
    ] = "",
    since: Annotated[str, typer.Option(help="Only entries after this time, or of the last 3d, 2h.")] = "",
    until: Annotated[str, typer.Option(help="Only entries before this time.")] = "",
    limit: LimitOption = 50,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List audit entries over the API, newest first. Only admins may."""
    query = {"actor": actor, "action": action, "objectKind": kind, "objectId": object_id}
    moments = {"since": past_moment("--since", since), "until": past_moment("--until", until)}
    show_list(_RECORDS, "/audit", output, limit=limit, query={**query, **moments})


@app.command("verify")
def verify_audit(
    anchor: Annotated[
        str,
        typer.Option(
            help="A link that an earlier run printed, as SEQUENCE:HASH. It must still be in the chain."
        ),
    ] = "",
) -> None:
    """Check the whole audit log. Exit 1, with the rows, if one was changed, removed or inserted."""
    from kapsa.fleet.infrastructure.audit.chain import chain_key
    from kapsa.fleet.infrastructure.audit.verifier import verify_chain
    from kapsa.fleet.server.keys import open_vault

    settings = read_settings()

    async def verify(database: Database) -> AuditReport:
        async with open_vault(settings) as vault:
            return await verify_chain(database, await chain_key(database, vault), anchor=anchor)

    report = with_database(settings, verify)
    for finding in report.findings:
        typer.echo(finding.problem, err=True)
    state = f"{len(report.findings)} problems in" if report.findings else "whole:"
    typer.echo(f"{state} {report.links} links, {report.erased} erased, {report.unsealed} not sealed yet")
    typer.echo(f"anchor {report.anchor}")
    raise typer.Exit(1 if report.findings else 0)
