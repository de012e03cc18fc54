"""The output of a run: progress on stderr, so that stdout has only the tables."""

from __future__ import annotations

import sys

from rich.console import Console

output = Console(width=160 if not sys.stdout.isatty() else None)
_progress = Console(stderr=True, highlight=False, width=160 if not sys.stderr.isatty() else None)


def say(text: str) -> None:
    """Print a line of progress."""
    _progress.print(text)


def warn(text: str) -> None:
    """Print a line in red."""
    _progress.print(f"[bold red]{text}[/bold red]")
