"""`kapsa fleet deployments watch`, over an API that answers by a script: the live view, and a line for each change."""

from __future__ import annotations

import functools
import io
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from rich.console import Console

from kapsa.cli.fleet.client.manager_api import ManagerApi
from kapsa.cli.fleet.client.problems import CallRefused, ManagerUnavailable
from kapsa.cli.fleet.people import watch
from kapsa.cli.fleet.people.watch import watch_deployment
from kapsa.fleet.api.views import DeploymentHistory
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, RolloutEvent
from kapsa.fleet.domain.rollout.targets import TargetState
from kapsa.fleet.orchestrator.deployment_requests import DeploymentDetails
from tests.cli.fleet.test_views import NOW, details, target

ID = str(uuid.UUID(int=7))
EVENTS = (
    RolloutEvent("StepChanged", "Upgrade → Validate", "dev-1", at=NOW, sequence=1),
    RolloutEvent("Completed", "all clusters are healthy", at=NOW + timedelta(seconds=9), sequence=2),
)
OUTAGE = ManagerUnavailable("no answer from the manager at https://fleet.example.com")


def state(phase: DeploymentPhase, cluster: TargetState, *, message: str = "") -> DeploymentDetails:
    shown = details(target("dev-1", cluster))
    deployment = msgspec.structs.replace(shown.deployment, phase=phase, message=message)
    return msgspec.structs.replace(shown, deployment=deployment)


VALIDATING = state(DeploymentPhase.VALIDATING, TargetState.VALIDATING)
COMPLETED = state(DeploymentPhase.COMPLETED, TargetState.HEALTHY)
FAILED = state(DeploymentPhase.FAILED, TargetState.FAILED, message="dev-1 crashes")


class ScriptedApi(ManagerApi):
    """An API that gives each of its answers once, with a history that grows by one entry with each state."""

    def __init__(self, *answers: DeploymentDetails | Exception) -> None:
        super().__init__("http://127.0.0.1:1", "a.b.c")
        self._answers = list(answers)
        self._events: list[RolloutEvent] = []
        self.read_after: list[int] = []
        """The sequence number after which each read of the history began."""
        self.before_answer: Callable[[], None] = lambda: None

    async def get(self, path: str, **query: object) -> Any:
        if path.endswith("/events"):
            after = int(str(query["after"]))
            self.read_after.append(after)
            new = tuple(each for each in self._events if each.sequence > after)
            return as_json(DeploymentHistory(new, len(self._events)))
        self.before_answer()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self._events.append(EVENTS[len(self._events)])
        return as_json(answer)


def as_json(answer: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SECONDS", 0)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The text that a terminal of 30 lines receives."""
    written = io.StringIO()
    console = functools.partial(Console, file=written, force_terminal=True, width=140, height=30)
    monkeypatch.setattr(watch, "Console", functools.partial(console, color_system=None))
    return written


async def test_the_live_view_draws_each_state_and_an_outage_below_the_last_one(
    screen: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    api = ScriptedApi(VALIDATING, OUTAGE, COMPLETED)
    lengths: list[int] = []
    api.before_answer = lambda: lengths.append(len(screen.getvalue()))
    assert await watch_deployment(api, ID) == 0
    await api.close()
    text = screen.getvalue()
    begin, outage, end = lengths
    first, second, last = text[begin:outage], text[outage:end], text[end:]
    assert "Upgrade → Validate" in first
    assert "stage 1 open: 1 Validating" in first
    assert "trying again" not in first
    assert "no answer from the manager at https://fleet.example.com; trying again" in second
    assert "stage 1 open: 1 Validating" in second, "the last state stays"
    assert "Upgrade → Validate" in last, "the newest entries stay"
    assert "all clusters are healthy" in last
    assert "phase: Completed" in last
    assert "trying again" not in last
    assert api.read_after == [0, 1, 1, 2]
    assert capsys.readouterr().out == "widget 1.1.0 is Completed\n"


async def test_the_cursor_is_back_after_a_failure_and_the_last_state_stays(screen: io.StringIO) -> None:
    api = ScriptedApi(VALIDATING, CallRefused("GET /deployments", 403, "you may not"))
    with pytest.raises(CallRefused):
        await watch_deployment(api, ID)
    await api.close()
    hidden, shown = screen.getvalue().rfind("\x1b[?25l"), screen.getvalue().rfind("\x1b[?25h")
    assert -1 < hidden < shown
    assert "stage 1 open: 1 Validating" in screen.getvalue()


async def test_without_a_terminal_each_change_is_a_line_and_an_outage_one_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = CallRefused("GET /deployments", 503, "the database is away")
    api = ScriptedApi(VALIDATING, OUTAGE, refused, FAILED)
    assert await watch_deployment(api, ID) == 1
    await api.close()
    printed = capsys.readouterr()
    changes = [line.split()[1:] for line in printed.out.splitlines()[:-1]]
    assert [" ".join(words) for words in changes] == [
        "dev-1 StepChanged Upgrade → Validate",
        "- Completed all clusters are healthy",
    ]
    assert printed.out.splitlines()[-1] == "widget 1.1.0 is Failed: dev-1 crashes"
    assert printed.err == f"kapsa: {OUTAGE}; trying again\n"
