"""`kapsa environments`: run the environments operator, and write what it needs in a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kapsa import __version__

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@app.callback()
def environments() -> None:
    """An isolated environment for every branch and pull request. Set up by KAPSA_* variables."""


@app.command()
def run(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The cluster; KUBECONFIG, the pod's own or ~/.kube/config unless given."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="The kubeconfig's context to use.")] = None,
) -> None:
    """Run the operator until SIGTERM or SIGINT; then what runs may finish, and the lease is released."""
    from kapsa.environments.settings import Settings

    settings = Settings.from_environment()  # here, so that a bad value is one line and nothing starts
    given = {
        "--kubeconfig": kubeconfig,
        "--context": context,
        "--log-level": settings.log_level.lower(),
        "--log-format": "text" if settings.log_format == "console" else "json",
    }
    arguments = [f"{name}={value}" for name, value in given.items() if value is not None]
    target = "kapsa.environments.operator:operator"
    # As `kapsa run` does: the command line's machinery would stay in the operator's memory for months.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "kapsa.runtime.operator.entrypoint", target, *arguments])  # noqa: S606


@app.command()
def settings() -> None:
    """List every KAPSA_* variable with its default."""
    from kapsa.environments.settings import Settings

    for variable, default, text in Settings.documentation():
        shown = f"{variable}={default}"
        typer.echo(f"{shown}\n    {' '.join(text.split())}")


@app.command()
def manifests(
    image: Annotated[str, typer.Option(help="The operator's image.")] = f"kapsa:{__version__}",
    replicas: Annotated[int, typer.Option(min=1, max=10, help="How many run; one of them works.")] = 2,
    crds_only: Annotated[bool, typer.Option("--crds-only", help="Only the kinds.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the file is out of date.")
    ] = False,
) -> None:
    """Write the kinds, the namespace, the least rights, the Deployment and its Services as YAML.

    What KAPSA_* variables say here, they will say there.
    """
    from kapsa.cli.output import write
    from kapsa.cli.target import TargetError
    from kapsa.environments.installation import crds, installation
    from kapsa.environments.settings import Settings
    from kapsa.runtime.generate.manifest import to_yaml

    if check and output is None:
        raise TargetError("--check needs the file to look at: give --output")
    wanted = Settings.from_environment()
    made = crds() if crds_only else installation(wanted, image=image, replicas=replicas)
    write(to_yaml(made), output, check=check)
