"""The lines that a demo prints: steps, results and text to copy, each with its time."""

from __future__ import annotations

import os
import signal
import sys
import time

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["ProgressLines"]


class _Console(Console):
    """A console that stops the demo cleanly when its reader is gone, as with `| head`."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        os.kill(os.getpid(), signal.SIGINT)


class ProgressLines:
    """Lines of progress on a console."""

    def __init__(self) -> None:
        self._console = _Console(highlight=False, emoji=False)
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._began

    def say(self, line: str) -> None:
        """Print a line."""
        self._line(escape(line))

    def confirm(self, line: str) -> None:
        """Print a line for a result that the demo waited for."""
        mark = "✓" if self._console.encoding.startswith("utf") else "ok:"
        self._line(f"[green]{mark}[/green] {escape(line)}")

    def headline(self, line: str) -> None:
        """Print the title of the next step."""
        self._console.print()
        self._line(f"[bold]{escape(line)}[/bold]")

    def show(self, text: str) -> None:
        """Print text that is meant to be copied."""
        self._console.print(escape(text), soft_wrap=True)

    def _line(self, markup: str) -> None:
        when = f"{self.seconds:5.1f} s"
        if not self._console.is_terminal:
            self._console.print(f"{when}  {markup}", soft_wrap=True)
            return
        # In a grid, a line that is too long for the terminal wraps below itself.
        grid = Table.grid(padding=(0, 2))
        grid.add_row(f"[dim]{when}[/dim]", markup)
        self._console.print(grid)
