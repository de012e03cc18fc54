"""`kapsa environments`: work with environments, run their operator, or generate the manifests to install it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from kapsa import __version__
from kapsa.cli.environments import browser, changes, description, logs, overview
from kapsa.cli.option_groups import expand_options

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@app.callback()
def environments() -> None:
    """Work with environments of branches and pull requests, and run the operator that creates them."""


_VERBS: Mapping[str, Callable[..., None]] = {
    "ls": overview.ls,
    "describe": description.describe,
    "logs": logs.logs,
    "open": browser.open_in_browser,
    "approve": changes.approve,
    "sleep": changes.sleep,
    "wake": changes.wake,
    "redeploy": changes.redeploy,
    "extend": changes.extend,
}
for verb, function in _VERBS.items():
    app.command(verb)(expand_options(function))


@app.command()
def run(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The kubeconfig to use (default: KUBECONFIG, the pod's own, or ~/.kube/config)."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="The context of the kubeconfig to use.")] = None,
) -> None:
    """Run the operator, configured by KAPSA_* variables. On SIGTERM or SIGINT it finishes what it is doing and releases its lease."""
    from kapsa.environments.settings import Settings

    settings = Settings.from_environment()  # before anything starts, so that an invalid value is one line
    given = {
        "--kubeconfig": kubeconfig,
        "--context": context,
        "--log-level": settings.log_level.lower(),
        "--log-format": "text" if settings.log_format == "console" else "json",
    }
    arguments = [f"{name}={value}" for name, value in given.items() if value is not None]
    target = "kapsa.environments.operator:operator"
    # As `kapsa run` does: the command-line libraries would stay in the operator's memory for months.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "kapsa.runtime.operator.entrypoint", target, *arguments])  # noqa: S606


@app.command()
def settings() -> None:
    """List all KAPSA_* variables with their defaults."""
    from kapsa.environments.settings import Settings

    for variable, default, text in Settings.documentation():
        shown = f"{variable}={default}"
        typer.echo(f"{shown}\n    {' '.join(text.split())}")


@app.command()
def manifests(
    image: Annotated[str, typer.Option(help="The operator's image.")] = f"kapsa:{__version__}",
    replicas: Annotated[
        int, typer.Option(min=1, max=10, help="The number of replicas, one of which is the leader.")
    ] = 2,
    crds_only: Annotated[
        bool, typer.Option("--crds-only", help="Generate only the CustomResourceDefinitions.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a file instead of standard output."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the file is out of date.")
    ] = False,
) -> None:
    """Generate the CRDs, the namespace, the RBAC, the Deployment and its Services as YAML.

    KAPSA_* variables that are set here are set in the Deployment.
    """
    from kapsa.cli.output import write
    from kapsa.cli.target import TargetError
    from kapsa.environments.installation import crds, installation
    from kapsa.environments.settings import Settings
    from kapsa.runtime import to_yaml

    if check and output is None:
        raise TargetError("--check needs a file to compare with: give --output")
    configured = Settings.from_environment()
    made = crds() if crds_only else installation(configured, image=image, replicas=replicas)
    write(to_yaml(made), output, check=check)
