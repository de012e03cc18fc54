"""A deployment followed until it ends: a live view on a terminal, otherwise a line for each change.

It reads the deployment and its history once a second. A manager that does not answer for a while, as when it is
replaced by a new version, ends nothing: the history goes on after the last entry that was read.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Protocol

import typer
from rich.console import Console

from kapsa.cli.fleet.client.manager_api import ManagerApi, as_type, path_of
from kapsa.cli.fleet.client.problems import CallRefused, ManagerUnavailable
from kapsa.cli.fleet.views.live import LiveView
from kapsa.cli.fleet.views.rollouts import event_line, evidence_text, wait_text
from kapsa.cli.tables import printable
from kapsa.fleet.api.views import DeploymentHistory
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, RolloutEvent
from kapsa.fleet.orchestrator.deployment_requests import DeploymentDetails

__all__ = ["read_history", "watch_deployment"]

_SECONDS = 1.0
_PATIENCE = 900.0
"""Seconds without an answer of the manager after which the watch gives up."""
_RECENT = 5


class RolloutView(Protocol):
    """The place where a watch shows what it reads."""

    def show(self, details: DeploymentDetails, new: list[RolloutEvent], api: ManagerApi) -> None:
        """Show the present state and the new entries of the history."""
        ...

    def warn(self, problem: str) -> None:
        """Show that the manager does not answer."""
        ...


class PlainView:
    """A line for each change, for logs and pipes."""

    def __init__(self) -> None:
        self._evidence: dict[str, str] = {}
        self._waits = ""
        self._problem = ""

    def show(self, details: DeploymentDetails, new: list[RolloutEvent], api: ManagerApi) -> None:
        """Print the new entries, and the evidence and waits that have changed."""
        self._problem = ""
        for event in new:
            typer.echo(event_line(event))
        deployment = details.deployment
        if deployment.waits_for and deployment.waits_for != self._waits:
            self._line(api, "-", "Waits", wait_text(deployment.waits_for, deployment.deadline, api.now))
        self._waits = deployment.waits_for
        for target in details.clusters:
            # The counts grow with each check, which is nothing new.
            text = f"{target.gate.last}{target.gate.reason}{target.waits_for}"
            if self._evidence.get(target.cluster, "") != text and (evidence_text(target) or target.waits_for):
                waits = wait_text(target.waits_for, target.deadline, api.now)
                parts = [evidence_text(target), f"waits for {waits}" if waits else ""]
                self._line(api, target.cluster, "Evidence", "; ".join(filter(None, parts)))
            self._evidence[target.cluster] = text

    def warn(self, problem: str) -> None:
        """Print that the manager does not answer, once for each outage."""
        if not self._problem:
            typer.echo(f"kapsa: {problem}; trying again", err=True)
        self._problem = problem

    def _line(self, api: ManagerApi, cluster: str, kind: str, text: str) -> None:
        typer.echo(event_line(RolloutEvent(kind, text, cluster, at=api.now)))


class TerminalView:
    """A live view."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._recent: deque[str] = deque(maxlen=_RECENT)

    def show(self, details: DeploymentDetails, new: list[RolloutEvent], api: ManagerApi) -> None:
        """Draw the present state, with the newest entries of the history."""
        self._recent.extend(event_line(each) for each in new)
        self._view.update(details, list(self._recent), api.now)

    def warn(self, problem: str) -> None:
        """Draw the problem below the last state."""
        self._view.warn(problem)


async def watch_deployment(api: ManagerApi, deployment_id: str) -> int:
    """Follow a deployment until it ends. Return the exit code: 0 if it completed."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        details = await _follow(api, deployment_id, PlainView())
    else:
        with LiveView(console) as view:
            details = await _follow(api, deployment_id, TerminalView(view))
    deployment = details.deployment
    ended = f"{deployment.operator_name} {deployment.version} is {deployment.phase}"
    typer.echo(printable(f"{ended}: {deployment.message}" if deployment.message else ended))
    return 0 if deployment.phase is DeploymentPhase.COMPLETED else 1


async def _follow(api: ManagerApi, deployment_id: str, view: RolloutView) -> DeploymentDetails:
    last, answered = 0, time.monotonic()
    while True:
        try:
            # The state first: its history, read afterwards, is then complete.
            answer = await api.get(path_of("deployments", deployment_id))
            new = [as_type(each, RolloutEvent) async for each in read_history(api, deployment_id, after=last)]
        except (ManagerUnavailable, CallRefused) as error:
            if not _is_passing(error) or time.monotonic() - answered > _PATIENCE:
                raise
            view.warn(str(error))
        else:
            answered = time.monotonic()
            last = new[-1].sequence if new else last
            details = as_type(answer, DeploymentDetails)
            view.show(details, new, api)
            if not details.deployment.active:
                return details
        await asyncio.sleep(_SECONDS)


def _is_passing(error: Exception) -> bool:
    """Return whether a failed call may succeed later without anybody's help."""
    return isinstance(error, ManagerUnavailable) or getattr(error, "status", 0) in (429, 500, 502, 503, 504)


async def read_history(api: ManagerApi, deployment_id: str, *, after: int = 0) -> AsyncIterator[Any]:
    """Yield the entries of a deployment's history after a sequence number, as the API answers them."""
    while True:
        answer = await api.get(path_of("deployments", deployment_id, "events"), after=after)
        history = as_type(answer, DeploymentHistory)
        for each in answer["items"]:
            yield each
        if not history.items or history.last_sequence <= after:
            return
        after = history.last_sequence
