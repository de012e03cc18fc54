"""`kapsa new`: start an operator project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    name: Annotated[str, typer.Argument(help="What it is called: lower case, such as shop or web-shop.")],
    directory: Annotated[
        Path | None,
        typer.Option("--directory", "-d", metavar="DIR", help="Where to; a folder of that name by default."),
    ] = None,
    group: Annotated[str, typer.Option("--group", help="The API group of its kind.")] = "example.com",
    kind: Annotated[
        str | None, typer.Option("--kind", help="Its kind, in CamelCase; made from the name by default.")
    ] = None,
) -> None:
    """Write a working operator project: resource, controller, tests, Dockerfile and manifests."""
    from kapsa.runtime.generate.scaffold import OperatorProject, create_project

    target = directory or Path(name)
    for path in create_project(OperatorProject(name=name, group=group, kind=kind or ""), target):
        typer.echo(f"  {path}")
    typer.echo(f"\nNow: cd {target} && make test")
