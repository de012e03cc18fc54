"""`kapsa fleet audit`: check the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kapsa.cli.fleet.session import read_settings, with_database

if TYPE_CHECKING:
    from kapsa.fleet.infrastructure.audit.verifier import AuditReport
    from kapsa.fleet.infrastructure.postgres.database import Database

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check the audit log.")


@app.callback()
def audit() -> None:
    """Check the audit log."""


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
    from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
    from kapsa.fleet.server.services import encryption_keys

    settings = read_settings()

    async def verify(database: Database) -> AuditReport:
        vault = LocalVault(encryption_keys(settings))
        return await verify_chain(database, await chain_key(database, vault), anchor=anchor)

    report = with_database(settings, verify)
    for finding in report.findings:
        typer.echo(finding.problem, err=True)
    state = f"{len(report.findings)} problems in" if report.findings else "whole:"
    typer.echo(f"{state} {report.links} links, {report.erased} erased, {report.unsealed} not sealed yet")
    typer.echo(f"anchor {report.anchor}")
    raise typer.Exit(1 if report.findings else 0)
