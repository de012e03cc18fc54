"""`kapsa environments open`: an environment in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from kapsa.cli.environments.options import ClusterChoice, Selector
from kapsa.cli.environments.selection import select_one
from kapsa.cli.environments.session import Session, run
from kapsa.cli.tables import printable
from kapsa.cli.target import TargetError
from kapsa.environments.resources import Environment

__all__ = ["open_in_browser"]


def open_in_browser(
    selector: Selector,
    print_only: Annotated[bool, typer.Option("--print", help="Print the URL, and open no browser.")] = False,
    *,
    cluster: ClusterChoice,
) -> None:
    """Open an environment in the browser, and print its URL.

    \b
    Examples:
      kapsa environments open cart
      curl "$(kapsa environments open --pr 42 --print)"
    """

    async def work(session: Session) -> Environment:
        return await select_one(session, selector)

    environment = run(cluster, work)
    url = _url_of(environment)
    typer.echo(url)
    if not print_only and not webbrowser.open(url):
        typer.echo("kapsa: no browser on this machine: copy the URL", err=True)


def _url_of(environment: Environment) -> str:
    url = environment.status.url
    if not url:
        raise TargetError(
            f"environment {environment.name} has no URL (phase {environment.status.phase}): `kapsa environments describe "
            f"{environment.name} -n {environment.namespace}` shows why"
        )
    if not url.startswith(("https://", "http://")) or not url.isprintable():
        raise TargetError(
            f"the URL of environment {environment.name} is not one of the web: {printable(url)}"
        )
    if environment.status.phase != "Ready":
        typer.echo(
            f"kapsa: environment {environment.name} is {environment.status.phase}, not Ready", err=True
        )
    return url
