"""Lists and single objects in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import typer

from kapsa.cli.fleet.client.connection import call_manager
from kapsa.cli.fleet.client.manager_api import ManagerApi, as_type
from kapsa.cli.tables import OutputFormat, print_document, print_table, printable

__all__ = ["LimitOption", "ListView", "YesOption", "show_list", "show_result"]

Item = TypeVar("Item")

LimitOption = Annotated[int, typer.Option(min=0, help="The largest number of entries; 0 for all.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class ListView(msgspec.Struct, Generic[Item], frozen=True):
    """The look of a list: its columns, and the row of an item."""

    kind: type[Item]
    headers: tuple[str, ...]
    row: Callable[[Item, datetime], Sequence[object]]
    empty: str
    """The sentence for a list without items, with what to do."""
    name: str = "name"
    """The field that `-o name` prints."""


def show_list(
    view: ListView[Any],
    path: str,
    output: OutputFormat,
    *,
    limit: int = 0,
    keep: Callable[[Any], bool] = lambda item: True,
    query: Mapping[str, object] | None = None,
) -> None:
    """Print a list of the API, read page by page."""

    async def read(api: ManagerApi) -> tuple[list[Any], datetime, bool]:
        size = limit + 1 if limit else 0  # with one more than is shown, there are more
        items = [each async for each in api.items(path, limit=size, **(query or {})) if keep(each)]
        return items[: limit or None], api.now, bool(limit) and len(items) > limit

    items, now, more = call_manager(read)
    match output:
        case OutputFormat.TABLE:
            rows = [view.row(as_type(each, view.kind), now) for each in items]
            print_table(view.headers, rows, empty=view.empty)
        case OutputFormat.NAME:
            for each in items:
                typer.echo(printable(each[view.name]))
        case _:
            print_document({"items": items}, output)
    if more:
        typer.echo(f"only {limit} are shown: use --limit 0 for all", err=True)


def show_result(
    answer: Any, output: OutputFormat, describe: Callable[[], None], *, name: Callable[[], str]
) -> None:
    """Print an answer: by `describe` for people, and as it came for programs."""
    match output:
        case OutputFormat.TABLE:
            describe()
        case OutputFormat.NAME:
            typer.echo(printable(name()))
        case _:
            print_document(answer, output)
