"""The live view of a deployment on a terminal."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kapsa.cli.fleet.views.rollouts import (
    CLUSTER_HEADERS,
    cluster_rows,
    deployment_lines,
    most_telling,
    stage_lines,
)
from kapsa.cli.tables import printable
from kapsa.fleet.orchestrator.deployment_requests import DeploymentDetails

__all__ = ["LiveView", "render_deployment"]

_COLORS = {
    "Healthy": "green",
    "Completed": "green",
    "Applying": "cyan",
    "Deploying": "cyan",
    "Validating": "yellow",
    "AwaitingApproval": "yellow",
    "Paused": "yellow",
    "Failed": "red",
    "RollingBack": "magenta",
    "RolledBack": "blue",
}
_HEAD = frozenset({"operator", "phase", "waits for", "message", "time"})
_SPARE = 8
"""Lines that the headers, the borders and the prompt need."""


class LiveView:
    """A part of the terminal that is drawn again with each state. The last one stays when the view ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._drawn: RenderableType = ""

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def update(self, details: DeploymentDetails, events: list[str], now: datetime) -> None:
        """Draw a state and the newest entries of the history."""
        self._drawn = render_deployment(details, events, now, height=self._console.height)
        self._live.update(self._drawn, refresh=True)

    def warn(self, problem: str) -> None:
        """Draw a problem below the last state."""
        note = Text(f"{printable(problem)}; trying again", style="red")
        self._live.update(Group(self._drawn, note), refresh=True)


def render_deployment(
    details: DeploymentDetails, events: list[str], now: datetime, *, height: int
) -> RenderableType:
    """Return a deployment as a drawing of at most `height` lines, if that is possible."""
    head = [Text.assemble((f"{label}: ", "bold"), _colored(value)) for label, value in _head(details, now)]
    stages = [Text(printable(line)) for line in stage_lines(details)][-max(3, height // 4) :]
    room = max(3, height - len(head) - len(stages) - len(events) - _SPARE)
    shown, others = most_telling(details.clusters, room)
    table = Table(*(header.lower() for header in CLUSTER_HEADERS), expand=False)
    for row in cluster_rows(shown, now):
        table.add_row(*(_cell(cell) for cell in row))
    more = [Text(others, style="dim")] if others else []
    history = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in events]
    return Group(*head, *stages, table, *more, *history)


def _head(details: DeploymentDetails, now: datetime) -> list[tuple[str, str]]:
    return [
        (label, value)
        for label, value in deployment_lines(details.deployment, now)
        if value and label in _HEAD
    ]


def _cell(value: object) -> Text:
    text = _colored(str(value))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _colored(value: str) -> Text:
    return Text(printable(value), style=_COLORS.get(value, ""))
