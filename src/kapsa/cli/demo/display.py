"""The demo's output: a line for each event and, on a terminal, a live table of the environments below."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from kapsa.cli.demo.progress_lines import ProgressLines
from kapsa.environments.resources import Environment
from kapsa.runtime import Client, ClientError

__all__ = ["Display"]

_POLL_SECONDS = 0.1
_COLORS = {
    "Ready": "green",
    "Failed": "red",
    "Building": "yellow",
    "Deploying": "cyan",
    "Degraded": "magenta",
}


class Display(ProgressLines):
    """Lines of progress, and a live table of the environments on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._phases: dict[str, str] = {}
        self.environments: Mapping[str, Environment] = {}
        """Environments by name, as of the last poll."""

    @contextlib.asynccontextmanager
    async def following(self, client: Client) -> AsyncIterator[None]:
        """Poll the environments until the block ends: print each new phase, and refresh the table."""
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
            with contextlib.suppress(ClientError):  # the next poll follows soon
                listed = (await client.list(Environment)).items
                self.environments = {each.name: each for each in listed}
                self._print_phases()
            if self._console.is_terminal:
                live.update(self._table() if self.environments else "", refresh=True)
            await asyncio.sleep(_POLL_SECONDS)

    def _print_phases(self) -> None:
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
    """Return details on the phase."""
    status = environment.status
    if environment.metadata.deleting:
        return ""
    if status.phase == "Ready":
        return f" with commit {(status.commit_sha or '')[:7]}"
    if status.phase == "Failed" and status.failure is not None:
        return f": {status.failure.reason}"
    return ""
