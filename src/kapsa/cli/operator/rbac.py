"""`kapsa rbac`: the least RBAC that an operator needs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kapsa.cli.target import TargetError

__all__ = ["command"]


class Scope(StrEnum):
    """The kind of role to generate."""

    AUTO = "auto"
    ROLE = "Role"
    CLUSTER_ROLE = "ClusterRole"


def command(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:OPERATOR", help="An operator in a module, such as myapp:operator."),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="The name of the service account and roles (default: the operator's name)."
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", help="The namespace that the operator runs in (default: NAME-system)."
        ),
    ] = None,
    role: Annotated[
        Scope,
        typer.Option(
            "--role", help="auto: a Role in each watched namespace, or a ClusterRole if all are watched."
        ),
    ] = Scope.AUTO,
    home: Annotated[
        bool,
        typer.Option(
            "--home", help="For an operator of many clusters: the roles in the cluster that it runs in."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a file instead of standard output."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the file is out of date.")
    ] = False,
) -> None:
    """Generate a service account, the least roles it needs and their bindings as YAML."""
    from kapsa.cli.output import write
    from kapsa.runtime import rbac_manifests, to_yaml
    from kapsa.runtime.operator.entrypoint import load_operator

    if check and output is None:
        raise TargetError("--check needs a file to compare with: give --output")
    operator = load_operator(target)
    if home and operator.clusters is None:
        raise TargetError(f"operator {operator.name} works in its own cluster alone: leave out --home")
    name = name or operator.name
    try:
        manifests = rbac_manifests(
            operator.home_rights() if home else operator.rights(),
            name=name,
            namespace=namespace or f"{name}-system",
            scope=role.value,
        )
    except ValueError as error:
        raise TargetError(str(error)) from error
    write(to_yaml(manifests), output, check=check)
