"""`kapsa new`: create an operator project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    name: Annotated[str, typer.Argument(help="The project's name in lower case, such as shop or web-shop.")],
    directory: Annotated[
        Path | None,
        typer.Option("--directory", "-d", metavar="DIR", help="The directory to create (default: NAME)."),
    ] = None,
    group: Annotated[str, typer.Option("--group", help="The API group of the resource.")] = "example.com",
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="The resource's kind in CamelCase (default: derived from NAME)."),
    ] = None,
) -> None:
    """Create a working operator project: resource, controller, tests, Dockerfile and manifests."""
    from kapsa.runtime.generate.scaffold import OperatorProject, create_project

    target = directory or Path(name)
    for path in create_project(OperatorProject(name=name, group=group, kind=kind or ""), target):
        typer.echo(f"  {path}")
    typer.echo(f"\nNext: cd {target} && make test")
