"""What the demo shows: a line for each thing that happens and, on a terminal, a live table of the environments below them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from kapsa.environments.resources import Environment
from kapsa.runtime import Client, ClientError

__all__ = ["Display"]

_LOOK_EVERY = 0.1
_COLORS = {"Ready": "green", "Failed": "red", "Building": "yellow", "Deploying": "cyan"}


class _Console(Console):
    """A console that ends the demo in order when nobody reads it any more, as behind `| head`."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        os.kill(os.getpid(), signal.SIGINT)


class Display:
    """Lines for everybody, and a table for those who watch."""

    def __init__(self) -> None:
        self._console = _Console(highlight=False, emoji=False)
        self._began = time.monotonic()
        self._phases: dict[str, str] = {}
        self.environments: Mapping[str, Environment] = {}
        """The environments there are, by name, as they were a moment ago."""

    def say(self, line: str) -> None:
        """Something that somebody did, or that came about."""
        self._line(escape(line))

    def happened(self, line: str) -> None:
        """Something that was waited for."""
        mark = "✓" if self._console.encoding.startswith("utf") else "ok:"
        self._line(f"[green]{mark}[/green] {escape(line)}")

    def headline(self, line: str) -> None:
        """What the next lines are about."""
        self._console.print()
        self._line(f"[bold]{escape(line)}[/bold]")

    def show(self, text: str) -> None:
        """Text for people to copy from, as it is."""
        self._console.print(escape(text), soft_wrap=True)

    def _line(self, markup: str) -> None:
        when = f"{time.monotonic() - self._began:5.1f} s"
        if not self._console.is_terminal:
            self._console.print(f"{when}  {markup}", soft_wrap=True)
            return
        # A grid, so that a line that is too long for the terminal goes on below itself.
        grid = Table.grid(padding=(0, 2))
        grid.add_row(f"[dim]{when}[/dim]", markup)
        self._console.print(grid)

    @contextlib.asynccontextmanager
    async def following(self, client: Client) -> AsyncIterator[None]:
        """Keep an eye on the environments: tell of each new phase, and renew the table."""
        live = Live(console=self._console, transient=True, auto_refresh=False)
        with live if self._console.is_terminal else contextlib.nullcontext():
            task = asyncio.create_task(self._follow(client, live))
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _follow(self, client: Client, live: Live) -> None:
        while True:
            with contextlib.suppress(ClientError):  # the next look comes soon
                found = (await client.list(Environment)).items
                self.environments = {each.name: each for each in found}
                self._tell_phases()
            if self._console.is_terminal:
                live.update(self._table() if self.environments else "", refresh=True)
            await asyncio.sleep(_LOOK_EVERY)

    def _tell_phases(self) -> None:
        phases = {name: _phase(each) for name, each in self.environments.items()}
        for name, phase in phases.items():
            if self._phases.get(name) != phase:
                self._line(f"  {escape(name)} is {_colored(phase)}{escape(_about(self.environments[name]))}")
        self._phases = phases

    def _table(self) -> Table:
        table = Table("environment", "phase", "commit", "url", "age")
        for name, each in sorted(self.environments.items()):
            age = datetime.now(UTC) - (each.metadata.creation_timestamp or datetime.now(UTC))
            shown = (each.status.commit_sha or "")[:7]
            table.add_row(
                name, _colored(_phase(each)), shown, each.status.url or "", f"{age.total_seconds():.0f} s"
            )
        return table


def _phase(environment: Environment) -> str:
    return "Deleting" if environment.metadata.deleting else environment.status.phase


def _colored(phase: str) -> str:
    color = _COLORS.get(phase)
    return f"[{color}]{phase}[/{color}]" if color else phase


def _about(environment: Environment) -> str:
    """What there is to know about its phase."""
    status = environment.status
    if environment.metadata.deleting:
        return ""
    if status.phase == "Ready":
        return f" with commit {(status.commit_sha or '')[:7]}"
    if status.phase == "Failed" and status.failure is not None:
        return f": {status.failure.reason}"
    return ""
