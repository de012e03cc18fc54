"""Where a run tells how far it is: standard error, so that the tables alone are on standard output."""

from __future__ import annotations

import sys

from rich.console import Console

output = Console(width=160 if not sys.stdout.isatty() else None)
_progress = Console(stderr=True, highlight=False, width=160 if not sys.stderr.isatty() else None)


def say(text: str) -> None:
    """One line of progress."""
    _progress.print(text)


def say_loudly(text: str) -> None:
    """One line that nobody should miss."""
    _progress.print(f"[bold red]{text}[/bold red]")
