"""`kapsa tools`: the programs Kapsa calls, where they are, and fetching those that can be fetched."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False, help="Show or fetch helm and kubectl.")


@app.callback(invoke_without_command=True)
def show(context: typer.Context) -> None:
    """Show which programs are found, and where."""
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
        list[str] | None, typer.Argument(metavar="[NAME]...", help="helm, kubectl; all by default.")
    ] = None,
) -> None:
    """Fetch programs that are missing or too old into the cache directory."""
    from kapsa.adapters.process.tools import find_tool, tool_names

    for name in names or tool_names():
        if name not in tool_names():
            raise typer.BadParameter(f"{name} is not one of {', '.join(tool_names())}")
        tool = find_tool(name)
        typer.echo(f"{name:<8} {tool.version:<8} {tool.source:<8} {tool.path}")
