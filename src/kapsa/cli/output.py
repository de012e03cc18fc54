"""Output of generated manifests: to standard output, to a file, or compared with a file."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from kapsa.cli.target import TargetError

__all__ = ["write"]


def write(text: str, path: Path | None, *, check: bool = False) -> None:
    """Write `text` to a file, or to standard output without one.

    With `check`, only exit 1 if the file differs.
    """
    if path is None:
        sys.stdout.write(text)
        return
    current = path.read_text(encoding="utf-8") if path.is_file() else None
    if check:
        if current != text:
            typer.echo(f"{path} is out of date: run the same command without --check", err=True)
            raise typer.Exit(1)
        return
    if current != text:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise TargetError(f"{path} cannot be written: {error.strerror}") from error
    typer.echo(f"{path}{'' if current != text else ' (unchanged)'}", err=True)
