"""Output of commands that list and describe objects: aligned columns for people, JSON and YAML for programs.

Texts come from clusters and from other people. Their control characters are escaped, so that none of them can move
the cursor of a terminal, hide a line, or rewrite one.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from kapsa.cli.target import TargetError

__all__ = [
    "OutputFormat",
    "OutputOption",
    "confirm",
    "format_age",
    "format_duration",
    "format_table",
    "print_document",
    "print_fields",
    "print_table",
    "printable",
]


_CONTROL = re.compile(r"[\x7f-\x9f]")
"""Control characters that JSON may have as they are, and that some terminals obey."""


class OutputFormat(enum.StrEnum):
    """The form of a command's output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    """Only the names or ids, one per line, for scripts."""


OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="The form of the output.", show_default=True)
]


def printable(text: object, *, keep: str = "") -> str:
    """Return a text whose control characters are escaped, those in `keep` excepted."""
    raw = "" if text is None else str(text)
    if raw.isprintable():
        return raw
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in raw
    )


def format_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned columns below their headers. The last column is not padded."""
    lines = [list(headers), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print rows as a table; the sentence `empty` on standard error if there are none."""
    listed = list(rows)
    if listed:
        typer.echo(format_table(headers, listed))
    else:
        typer.echo(empty, err=True)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print labels and values, one pair in a line. Empty values are left out."""
    shown = [(label, printable(value)) for label, value in fields]
    shown = [(label, value) for label, value in shown if value]
    width = max((len(label) for label, _ in shown), default=0)
    for label, value in shown:
        typer.echo(f"{label + ':':<{width + 2}}{value}")


def print_document(value: Any, form: OutputFormat) -> None:
    """Print a value as JSON or YAML."""
    builtins = msgspec.to_builtins(value)
    if form is OutputFormat.YAML:
        from kapsa.runtime import to_yaml

        typer.echo(to_yaml([builtins]), nl=False)
    else:
        text = msgspec.json.format(msgspec.json.encode(builtins), indent=2).decode()
        typer.echo(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def format_duration(seconds: float) -> str:
    """Return a time span in its two largest units: `45s`, `3m20s`, `2h5m`, `3d4h`."""
    rest = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"


def format_age(moment: datetime | None, now: datetime) -> str:
    """Return the time since a moment; empty without one."""
    return "" if moment is None else format_duration((now - moment).total_seconds())


def confirm(question: str, *, yes: bool) -> None:
    """Ask for consent on a terminal, unless it was given with `--yes`. Raises TargetError without either."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise TargetError(f"{question} Standard input is not a terminal: add --yes to confirm")
    if not typer.confirm(question, err=True):
        raise TargetError("nothing was changed")
