"""`kapsa fleet`: use a fleet manager over its API; run one, and look after its database, keys and audit log."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

import typer

from kapsa.cli.fleet import audit, keys, role
from kapsa.cli.fleet.people import approvals, clusters, crds, interventions, operators, sign_in
from kapsa.cli.fleet.session import read_settings, with_database
from kapsa.cli.target import TargetError

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)
app.command()(sign_in.login)
app.command()(sign_in.logout)
app.command()(sign_in.whoami)
app.command("role")(role.print_role)
app.add_typer(operators.app, name="operators")
app.add_typer(clusters.app, name="clusters")
app.add_typer(interventions.app, name="deployments")
app.add_typer(approvals.app, name="approvals")
app.add_typer(crds.app, name="crds")
app.add_typer(audit.app, name="audit")
app.add_typer(keys.app, name="keys")


@app.callback()
def fleet() -> None:
    """Roll operators out over many clusters.

    `serve`, `migrate`, `token`, `keys` and `audit verify` run where the manager runs, and are configured by
    KAPSA_FLEET_* variables and KAPSA_DATABASE_URL. All other commands call its API with the login of `login`.
    """


@app.command()
def serve() -> None:
    """Run the manager. Without KAPSA_DATABASE_URL it runs a PostgreSQL server of its own in the data directory.

    On SIGTERM or SIGINT it finishes what it is doing.
    """
    from kapsa.fleet.server import lifecycle
    from kapsa.runtime.telemetry import tracing

    settings = read_settings()
    tracing.configure("kapsa-fleet")
    raise typer.Exit(asyncio.run(lifecycle.serve(settings)))


@app.command()
def migrate() -> None:
    """Bring the database to the schema of this version. `serve` does so, too."""
    from kapsa.fleet.infrastructure.postgres.migration import migrate, newest_revision

    applied = with_database(read_settings(), migrate, migrated=False)
    done = f"applied {', '.join(applied)}" if applied else "nothing to do"
    typer.echo(f"the database is at revision {newest_revision()}: {done}")


@app.command()
def settings() -> None:
    """List all variables with their defaults."""
    from kapsa.fleet.settings import FleetSettings

    for variable, default, text in FleetSettings.documentation():
        typer.echo(f"{variable}={default}\n    {' '.join(text.split())}")


@app.command()
def token(
    subject: Annotated[str, typer.Argument(help="The name of the caller.")] = "developer",
    role: Annotated[
        list[str] | None,
        typer.Option(help="A role: Admin, Operator, Viewer or EnvironmentOwner. Repeatable."),
    ] = None,
    environment: Annotated[
        list[str] | None, typer.Option(help="An environment that an EnvironmentOwner owns. Repeatable.")
    ] = None,
    email: Annotated[str, typer.Option(help="The email address of the caller.")] = "",
    hours: Annotated[float, typer.Option(min=0.01, max=168, help="Hours until the token expires.")] = 8.0,
) -> None:
    """Print a token for development, signed by the key in the data directory.

    A manager with KAPSA_FLEET_JWT_ISSUER accepts no such token.
    """
    from datetime import UTC, datetime

    from kapsa.fleet.domain.principals import Principal, Role
    from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
    from kapsa.fleet.infrastructure.local_keys import LocalKeys

    settings = read_settings()
    if settings.jwt_issuer:
        raise TargetError(
            f"tokens are issued by {settings.jwt_issuer} (KAPSA_FLEET_JWT_ISSUER): `kapsa fleet token` is for development"
        )
    principal = Principal(
        subject,
        frozenset(_choose("role", Role, each) for each in role or ["Admin"]),
        frozenset(_choose("environment", ClusterEnvironment, each) for each in environment or ()),
        email,
    )
    lifetime = timedelta(hours=hours)
    local = LocalKeys(settings.directory)
    typer.echo(local.mint_token(principal, settings.jwt_audience, lifetime, datetime.now(UTC)))


def _choose(option: str, kind: Any, text: str) -> Any:
    choices = {each.value.lower(): each for each in kind}
    if text.lower() not in choices:
        raise TargetError(f"--{option} {text} is not one of {', '.join(each.value for each in kind)}")
    return choices[text.lower()]
