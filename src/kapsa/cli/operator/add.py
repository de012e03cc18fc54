"""`kapsa add`: add a kind, a webhook or a version to an operator project."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(
    help="Add a kind, a webhook or a version to a project that `kapsa new` made.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Directory = Annotated[
    Path, typer.Option("--directory", "-d", metavar="DIR", help="The directory of the project.")
]
KindName = Annotated[str, typer.Argument(metavar="KIND", help="The kind in CamelCase, such as Shop.")]


@app.command()
def kind(
    name: KindName,
    directory: Directory = Path(),
    group: Annotated[
        str, typer.Option("--group", help="Its API group (default: that of the first kind).")
    ] = "",
) -> None:
    """Add a kind with its controller, sample and tests."""
    from kapsa.runtime.generate.additions import ExistingProject, add_kind

    _report(add_kind(ExistingProject.load(directory.absolute()), name, group=group))


@app.command()
def webhook(
    name: KindName,
    directory: Directory = Path(),
    mutating: Annotated[bool, typer.Option("--mutating", help="Set defaults instead of checking.")] = False,
) -> None:
    """Add a webhook for a kind, with its Service and a test."""
    from kapsa.runtime.generate.additions import ExistingProject, add_webhook

    project = ExistingProject.load(directory.absolute())
    _report(add_webhook(project, name, form="mutating" if mutating else "validating"))


@app.command()
def version(
    name: KindName,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The new version, such as v1beta1.")],
    directory: Directory = Path(),
) -> None:
    """Add a version of a kind, with its conversion and a test."""
    from kapsa.runtime.generate.additions import ExistingProject, add_version

    _report(add_version(ExistingProject.load(directory.absolute()), name, version))


def _report(paths: Iterable[Path]) -> None:
    for path in paths:
        typer.echo(f"  {path}")
    typer.echo("\nNext: make test")
