"""The commands of `kapsa`: one module for each, imported only when it is called."""

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
# `run` has no module: it is a program of its own, `kapsa.runtime.operator.entrypoint`, and is never called here.
COMMANDS = {
    "demo": ("demo.command", "Watch environments or a fleet at work, on embedded devclusters."),
    "doctor": ("doctor", "Check the tools that Kapsa uses, and explain how to install missing ones."),
    "tools": ("tools", "List or install helm and kubectl."),
    "devcluster": ("devcluster", "Run a Kubernetes control plane for development and tests."),
    "new": ("operator.new", "Create an operator project."),
    "add": ("operator.add", "Add a kind, a webhook or a version to an operator project."),
    "run": ("", "Run an operator: MODULE:OPERATOR."),
    "crd": ("operator.crd", "Generate the CustomResourceDefinitions of a module."),
    "rbac": ("operator.rbac", "Generate the least RBAC that an operator needs."),
    "bundle": ("operator.bundle", "Generate a Helm chart or manifests that install an operator."),
    "inspect": ("operator.inspect", "Show the queues, runs and caches of a running operator."),
    "environments": (
        "environments.command",
        "Work with environments, run their operator, or generate its manifests.",
    ),
    "fleet": ("fleet.command", "Run the fleet manager, which rolls operators out over many clusters."),
    "completion": ("completion", "Print the completion script of bash, zsh or fish."),
}


class LateGroup(TyperGroup):
    """A group that imports a command's module only when it is called, which keeps `--help` fast.

    typer vendors click, whose types have no public name: hence `Any`.
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


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"kapsa {__version__}")
        raise typer.Exit


app = typer.Typer(cls=LateGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Kapsa: write Kubernetes operators in Python, and run them anywhere."""


def main() -> None:
    """Run a command. Print a user's mistake as one line on stderr, or as a traceback with KAPSA_DEBUG=1."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("KAPSA_DEBUG") or not getattr(error, "for_the_user", False):
            raise
        typer.echo(f"kapsa: {error}", err=True)
        sys.exit(1)
