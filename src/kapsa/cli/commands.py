"""The commands of `kapsa`: one module a group, loaded only when it is called, which keeps `kapsa --help` quick."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from kapsa import __version__

__all__ = ["app", "main"]

# name -> (module under kapsa.cli, one line of help). A module holds either `app` (a group) or `command` (a function).
# `run` has no module: it is a program of its own, `kapsa.runtime.operator.entrypoint`, and never comes here.
COMMANDS = {
    "demo": ("demo", "Run the main job end to end on the embedded devcluster."),
    "doctor": ("doctor", "Tell what is found, in which version, what is missing and how to get it."),
    "tools": ("tools", "Show or fetch helm and kubectl."),
    "devcluster": ("devcluster", "A Kubernetes control plane for development and tests."),
    "new": ("new", "Start an operator project."),
    "run": ("", "Run an operator: MODULE:OPERATOR."),
    "crd": ("crd", "Write the CustomResourceDefinitions of a module."),
    "rbac": ("rbac", "Write the least RBAC an operator needs."),
    "environments": ("environments", "Run the environments operator, or write its manifests."),
}


class LateGroup(TyperGroup):
    """A group that knows its commands' names and help, and imports a command's module when it is called.

    typer carries a click of its own whose types have no public name; hence `Any` here.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module_name, summary = COMMANDS.get(cmd_name, ("", ""))
        if not module_name:
            return None
        module = importlib.import_module(f"kapsa.cli.{module_name}")
        command = _command_of(module)
        command.name = cmd_name
        command.short_help = summary
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _command_of(module: Any) -> Any:
    if hasattr(module, "app"):
        return typer.main.get_command(module.app)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command()(module.command)
    return typer.main.get_command(single)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kapsa {__version__}")
        raise typer.Exit


app = typer.Typer(cls=LateGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Kapsa: write Kubernetes operators in Python, and try them anywhere."""


def main() -> None:
    """A user's mistake is one line on standard error; KAPSA_DEBUG=1 shows the traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("KAPSA_DEBUG") or not getattr(error, "for_the_user", False):
            raise
        typer.echo(f"kapsa: {error}", err=True)
        sys.exit(1)
