"""The live table of a deployment: each cluster with its stage and state; without a terminal, a line for each change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from kapsa.cli.demo.progress_lines import ProgressLines
from kapsa.cli.fleet.client.manager_api import ManagerApi

__all__ = ["FleetDisplay"]

_POLL_SECONDS = 0.2
_COLORS = {
    "Healthy": "green",
    "Applying": "cyan",
    "Validating": "yellow",
    "Failed": "red",
    "RollingBack": "magenta",
    "RolledBack": "blue",
}


class FleetDisplay(ProgressLines):
    """Lines of progress, and a live table of the clusters of a deployment on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, str] = {}

    @contextlib.asynccontextmanager
    async def following(self, api: ManagerApi, deployment_id: str) -> AsyncIterator[None]:
        """Poll a deployment until the block ends: print each new state, and refresh the table."""
        self._states = {}
        live = Live(console=self._console, transient=True, auto_refresh=False)
        with live if self._console.is_terminal else contextlib.nullcontext():
            task = asyncio.create_task(self._follow(api, deployment_id, live))
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _follow(self, api: ManagerApi, deployment_id: str, live: Live) -> None:
        while True:
            details = await api.get(f"/deployments/{deployment_id}")
            if self._console.is_terminal:
                live.update(_table(details), refresh=True)
            else:
                self._print_changes(details)
            await asyncio.sleep(_POLL_SECONDS)

    def _print_changes(self, details: Any) -> None:
        for each in details["clusters"]:
            name, state = each["cluster"], each["state"]
            if self._states.get(name, "Pending") != state:
                why = f": {each['message']}" if state == "Failed" and each["message"] else ""
                self._line(f"  stage {each['stage']}  {escape(name)} is {_colored(state)}{escape(why)}")
            self._states[name] = state


def _table(details: Any) -> Table:
    deployment = details["deployment"]
    title = f"{deployment['operatorName']} {deployment['version']}: {deployment['phase']}"
    table = Table("stage", "cluster", "environment", "state", "waits for", title=title)
    ordered = sorted(details["clusters"], key=lambda each: (each["stage"], each["cluster"]))
    for each in ordered:
        about = each["message"] if each["state"] == "Failed" else each["waitsFor"]
        stage = str(each["stage"] or "")
        state = _colored(each["state"])
        table.add_row(stage, each["cluster"], each["environment"], state, escape(about[:30]))
    return table


def _colored(state: str) -> str:
    color = _COLORS.get(state)
    return f"[{color}]{state}[/{color}]" if color else state
