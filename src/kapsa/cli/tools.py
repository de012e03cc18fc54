"""`kapsa tools`: the programs that Kapsa runs, and the installation of missing ones."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False, help="List or install helm and kubectl.")


@app.callback(invoke_without_command=True)
def show(context: typer.Context) -> None:
    """List the programs that Kapsa runs, with their versions and paths."""
    if context.invoked_subcommand is not None:
        return
    from kapsa.adapters.process.tools import ToolNotFound, find_tool, tool_names

    missing = False
    for name in tool_names():
        try:
            tool = find_tool(name, install=False)
        except ToolNotFound as error:
            missing = True
            typer.echo(f"{name:<8} missing: {error}")
        else:
            typer.echo(f"{name:<8} {tool.version:<8} {tool.source:<8} {tool.path}")
    raise typer.Exit(1 if missing else 0)


@app.command()
def install(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="helm or kubectl (default: all).")
    ] = None,
) -> None:
    """Install programs that are missing or too old into the cache directory."""
    from kapsa.adapters.process.tools import find_tool, tool_names

    for name in names or tool_names():
        if name not in tool_names():
            raise typer.BadParameter(f"{name} is not one of {', '.join(tool_names())}")
        tool = find_tool(name)
        typer.echo(f"{name:<8} {tool.version:<8} {tool.source:<8} {tool.path}")
