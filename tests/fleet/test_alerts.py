"""The alerts and the dashboard of the manager: each metric exists, and each alert fires for its cause and only then."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kapsa.fleet.api.middleware.observation import ApiMetrics
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.strategies import DirectStrategy
from kapsa.fleet.infrastructure.health.metrics import WHOLE_CHECK
from kapsa.fleet.infrastructure.postgres.fleet_counts import FleetCounts
from kapsa.fleet.orchestrator.operator_health import HealthWord
from kapsa.fleet.server.telemetry import build_telemetry
from tests.fleet.examples import START
from tests.fleet.promql import Query, Recording, seconds

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "charts" / "kapsa" / "files"
ALERTS: dict[str, dict[str, Any]] = {
    each["alert"]: each for each in yaml.safe_load((FILES / "fleet-alerts.yaml").read_text(encoding="utf-8"))
}
PANELS = json.loads((FILES / "fleet-dashboard.json").read_text(encoding="utf-8"))["panels"]
INTERVAL = 30.0
WORDS = {"histogram_quantile", "sum", "max", "by", "rate", "increase", "absent", "count"}
LABELS = re.compile(r"\{[^}]*\}|by \([^)]*\)|\[\w+\]")


class Monitored:
    """The metrics of a manager, and what may happen to it."""

    def __init__(self) -> None:
        self.telemetry = build_telemetry()
        self.api = ApiMetrics(self.telemetry.collectors)
        self.reports = True
        self.deployment = VersionDeployment(
            id=uuid.UUID(int=1),
            operator_id=uuid.UUID(int=2),
            operator_name="cert-manager",
            version="2.0.0",
            strategy=DirectStrategy(),
            values={},
            phase=DeploymentPhase.DEPLOYING,
            requested_by="ada",
            created_at=START,
            started_at=START,
        )

    def work(self) -> None:
        """Do what a manager without problems does in half a minute."""
        self.show(1, {"Healthy": 3}, {"Deploying": 1})
        self.telemetry.health.show_operators({HealthWord.HEALTHY: 1})
        self.telemetry.health.record_duration(WHOLE_CHECK, 0.2)
        self.api.requests.labels("GET", "/api/v1/operators", "200").inc()
        self.end(DeploymentPhase.COMPLETED)

    def show(self, operators: int, clusters: dict[str, int], deployments: dict[str, int]) -> None:
        self.telemetry.fleet.show(FleetCounts(operators, clusters, deployments))

    def end(self, phase: DeploymentPhase, *, before: DeploymentPhase | None = None, took: float = 60) -> None:
        """End a deployment, or its rollback."""
        changes = {"rollback_started_at": START, "finished_at": START + timedelta(seconds=took)}
        after = msgspec.structs.replace(self.deployment, phase=phase, **changes)
        earlier = msgspec.structs.replace(self.deployment, phase=before or self.deployment.phase)
        self.telemetry.rollouts.phase_changed(earlier, after)

    def stop_reporting(self) -> None:
        self.reports = False


def fail(manager: Monitored) -> None:
    manager.end(DeploymentPhase.FAILED, before=DeploymentPhase.PLANNING)


def fail_rollback(manager: Monitored) -> None:
    manager.end(DeploymentPhase.FAILED, before=DeploymentPhase.ROLLING_BACK)


def roll_back(manager: Monitored) -> None:
    manager.end(DeploymentPhase.ROLLED_BACK, before=DeploymentPhase.ROLLING_BACK)


def roll_back_slowly(manager: Monitored) -> None:
    manager.end(DeploymentPhase.ROLLED_BACK, before=DeploymentPhase.ROLLING_BACK, took=290)


def lose_operator(manager: Monitored) -> None:
    manager.telemetry.health.show_operators({HealthWord.UNHEALTHY: 1})


def lose_cluster(manager: Monitored) -> None:
    manager.show(1, {"Healthy": 2, "Unhealthy": 1}, {})


def pause(manager: Monitored) -> None:
    manager.show(1, {"Healthy": 3}, {"Paused": 1})


def await_approval(manager: Monitored) -> None:
    manager.show(1, {"Healthy": 3}, {"AwaitingApproval": 1})


def check_slowly(manager: Monitored) -> None:
    for _ in range(10):
        manager.telemetry.health.record_duration(WHOLE_CHECK, 4.0)


def answer_with_errors(manager: Monitored) -> None:
    manager.api.requests.labels("POST", "/api/v1/deployments", "503").inc()


def fail_task(manager: Monitored) -> None:
    manager.telemetry.count_task_failure("outbox")


CAUSES: dict[str, Callable[[Monitored], None]] = {
    "KapsaFleetDown": Monitored.stop_reporting,
    "KapsaFleetDeploymentFailed": fail,
    "KapsaFleetRollbackFailed": fail_rollback,
    "KapsaFleetRolledBack": roll_back,
    "KapsaFleetRollbackSlow": roll_back_slowly,
    "KapsaFleetOperatorsUnhealthy": lose_operator,
    "KapsaFleetClustersUnhealthy": lose_cluster,
    "KapsaFleetDeploymentPaused": pause,
    "KapsaFleetApprovalsWait": await_approval,
    "KapsaFleetHealthChecksSlow": check_slowly,
    "KapsaFleetApiErrors": answer_with_errors,
    "KapsaFleetTaskFails": fail_task,
}


def fires_after(alert: dict[str, Any], cause: Callable[[Monitored], None], *, limit: float) -> float | None:
    """Return the seconds from a cause to the alert; None if it does not fire in time."""
    manager, recording, query = Monitored(), Recording(), Query(alert["expr"])
    pending: float | None = None
    for number in range(1, int(limit / INTERVAL) + 1):
        now = number * INTERVAL
        manager.work()
        cause(manager)
        if manager.reports:
            recording.scrape(manager.telemetry.collectors, now)
        if not query.evaluate(recording, now):
            pending = None
            continue
        pending = now if pending is None else pending
        if now - pending >= seconds(alert.get("for", "0s")):
            return now
    return None


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_an_alert_fires_for_its_cause_and_not_without_it(name: str) -> None:
    alert = ALERTS[name]
    wait = seconds(alert.get("for", "0s"))
    after = fires_after(alert, CAUSES[name], limit=wait + 1200)
    assert after is not None, f"{name} does not fire"
    assert after > wait
    assert fires_after(alert, lambda _: None, limit=wait + 600) is None, f"{name} fires without a cause"


@pytest.mark.parametrize("name", sorted(name for name, alert in ALERTS.items() if "for" not in alert))
def test_one_event_fires_an_alert_that_does_not_wait(name: str) -> None:
    rounds = itertools.count(1)

    def happen_once(manager: Monitored) -> None:
        if next(rounds) == 3:
            CAUSES[name](manager)

    assert fires_after(ALERTS[name], happen_once, limit=600) is not None


def test_every_alert_is_shown_to_fire() -> None:
    assert CAUSES.keys() == ALERTS.keys()


def test_alerts_and_panels_ask_for_metrics_that_exist() -> None:
    manager = Monitored()
    have = {family.name for family in manager.telemetry.collectors.collect()}
    expressions = [each["expr"] for each in ALERTS.values()]
    expressions += [target["expr"] for panel in PANELS for target in panel["targets"]]
    named = {
        name
        for expr in expressions
        for name in re.findall(r"[a-z]\w*", LABELS.sub("", expr))
        if name not in WORDS
    }
    assert len(named) > 15
    assert {re.sub("_(bucket|count|sum|total)$", "", name) for name in named} - {
        re.sub("_(count|total)$", "", name) for name in have
    } == set()


def test_every_alert_has_a_severity_and_a_section_of_the_runbook() -> None:
    for name, alert in ALERTS.items():
        assert alert["labels"]["severity"] in ("critical", "warning", "info"), name
        assert {"summary", "description", "runbook_url"} <= alert["annotations"].keys(), name
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor == name.lower()
        assert name in headings
    assert sorted(headings) == sorted(ALERTS)


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in PANELS)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
