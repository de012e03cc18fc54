"""A deployment as text: its phase, its stages, and for each cluster the evidence of its gate and the wait that is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import typer

from kapsa.cli.tables import format_duration, print_fields, print_table, printable
from kapsa.fleet.domain.health import Evidence
from kapsa.fleet.domain.rollout.deployments import RolloutEvent, VersionDeployment
from kapsa.fleet.domain.rollout.targets import TargetState
from kapsa.fleet.orchestrator.deployment_requests import DeploymentDetails, RollbackStatus, TargetStatus

__all__ = [
    "CLUSTER_HEADERS",
    "cause_text",
    "cluster_row",
    "cluster_rows",
    "deployment_lines",
    "describe_deployment",
    "describe_rollback",
    "event_line",
    "evidence_text",
    "most_telling",
    "stage_lines",
    "wait_text",
]

CLUSTER_HEADERS = ("STAGE", "CLUSTER", "ENVIRONMENT", "STATE", "STEP", "EVIDENCE", "WAITS FOR")

_CHECKED = frozenset(
    {TargetState.VALIDATING, TargetState.HEALTHY, TargetState.ROLLING_BACK, TargetState.FAILED}
)
_ENDED = frozenset({TargetState.ABORTED, TargetState.FAILED, TargetState.ROLLED_BACK, TargetState.SKIPPED})
_OPEN = frozenset({TargetState.PENDING, TargetState.APPLYING, TargetState.VALIDATING})
_URGENCY = (
    TargetState.FAILED,
    TargetState.ROLLING_BACK,
    TargetState.APPLYING,
    TargetState.VALIDATING,
    TargetState.PENDING,
    TargetState.ABORTED,
    TargetState.ROLLED_BACK,
    TargetState.SKIPPED,
    TargetState.HEALTHY,
)
"""The states by importance: if not all clusters fit on the screen, the first ones are shown."""


def cause_text(target: TargetStatus) -> str:
    """Return the reason for which a cluster has ended, or for which its wait gave up, as runbooks name it."""
    gave_up = target.state in _OPEN and target.reason and not target.waits_for
    if target.state not in _ENDED and not gave_up:
        return ""
    return f"{target.reason}: {target.message}".strip(": ")


def evidence_text(target: TargetStatus) -> str:
    """Return the cause of a cluster's end or stop, else what the checks of the new revision have shown so far."""
    gate = target.gate
    checks = gate.healthy_checks + gate.failed_checks
    if cause := cause_text(target):
        return cause
    if target.state not in _CHECKED or not (checks or gate.unknown_since):
        return ""
    match gate.last:
        case Evidence.HEALTHY:
            failed = f", {gate.failed_checks} failed" if gate.failed_checks else ""
            return f"healthy, {gate.healthy_checks} checks{failed}"
        case Evidence.FAILING:
            return f"failing, {gate.failed_in_a_row} in a row: {gate.reason}: {gate.message}".rstrip(": ")
        case _:
            return f"unknown: {gate.reason}: {gate.message}".rstrip(": ")


def wait_text(waits_for: str, deadline: datetime | None, now: datetime) -> str:
    """Return a wait with the time that is left of it."""
    if not waits_for or deadline is None:
        return waits_for
    rest = (deadline - now).total_seconds()
    return f"{waits_for} ({format_duration(rest)} left)" if rest > 0 else f"{waits_for} (due)"


def cluster_row(target: TargetStatus, now: datetime) -> tuple[object, ...]:
    """Return the row of a cluster."""
    return (
        target.stage or "-",
        target.cluster,
        target.environment,
        target.state,
        target.step,
        evidence_text(target),
        wait_text(target.waits_for, target.deadline, now),
    )


def cluster_rows(targets: Iterable[TargetStatus], now: datetime) -> list[tuple[object, ...]]:
    """Return the rows of clusters in the order of their stages."""
    return [cluster_row(each, now) for each in sorted(targets, key=lambda each: (each.stage, each.cluster))]


def most_telling(targets: Sequence[TargetStatus], room: int) -> tuple[list[TargetStatus], str]:
    """Return the clusters to show on `room` lines, and a line that counts the others."""
    if len(targets) <= room:
        return list(targets), ""
    ranked = sorted(targets, key=lambda each: (_URGENCY.index(each.state), each.stage, each.cluster))
    shown, others = ranked[: max(room - 1, 1)], ranked[max(room - 1, 1) :]
    counts = Counter(each.state for each in others)
    summary = ", ".join(f"{counts[state]} {state}" for state in _URGENCY if counts[state])
    return shown, f"and {len(others)} more: {summary}"


def deployment_lines(deployment: VersionDeployment, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the labels and values that describe a deployment as a whole."""
    yield "deployment", str(deployment.id)
    yield "operator", f"{deployment.operator_name} {deployment.version}"
    yield "strategy", type(deployment.strategy).__name__.removesuffix("Strategy")
    yield "phase", deployment.phase
    yield "attempt", str(deployment.attempt) if deployment.attempt > 1 else ""
    yield "waits for", wait_text(deployment.waits_for, deployment.deadline, now)
    yield "message", deployment.message
    yield "requested by", ", ".join(dict.fromkeys((deployment.requested_by, *deployment.retried_by)))
    yield "plan", deployment.plan_digest
    yield "forced", deployment.force_reason
    yield "windows set aside", deployment.window_override_reason
    yield "time", _elapsed(deployment, now)


def _elapsed(deployment: VersionDeployment, now: datetime) -> str:
    start = deployment.started_at or deployment.created_at
    return format_duration(((deployment.finished_at or now) - start).total_seconds())


def stage_lines(details: DeploymentDetails) -> Iterator[str]:
    """Yield a line for each stage: its clusters by their states, and its soak."""
    for stage in details.deployment.stages:
        states = Counter(each.state for each in details.clusters if each.cluster in stage.clusters)
        summary = ", ".join(f"{count} {state}" for state, count in states.most_common())
        mark = "passed" if stage.number <= details.deployment.stage else "open"
        soak = f", soak {format_duration(stage.soak.total_seconds())}" if stage.soak else ""
        yield f"stage {stage.number} {mark}: {summary}{soak}"


def describe_deployment(details: DeploymentDetails, now: datetime) -> None:
    """Print a deployment with its stages and clusters."""
    print_fields(deployment_lines(details.deployment, now))
    for line in stage_lines(details):
        typer.echo(line)
    typer.echo()
    print_table(CLUSTER_HEADERS, cluster_rows(details.clusters, now), empty="no clusters are chosen yet")


def describe_rollback(status: RollbackStatus) -> None:
    """Print the progress of a rollback."""
    print_fields(
        [
            ("deployment", status.deployment_id),
            ("phase", status.phase),
            ("reason", status.reason),
            ("started", f"{status.started_at:%Y-%m-%d %H:%M:%S} UTC" if status.started_at else "not yet"),
            ("finished", f"{status.finished_at:%Y-%m-%d %H:%M:%S} UTC" if status.finished_at else "not yet"),
        ]
    )
    typer.echo()
    rows = [
        (
            each.cluster,
            each.environment,
            each.state,
            each.previous_version or "-",
            cause_text(each) or each.message,
        )
        for each in status.clusters
    ]
    print_table(
        ("CLUSTER", "ENVIRONMENT", "STATE", "BACK TO", "MESSAGE"), rows, empty="no clusters are chosen yet"
    )


def event_line(event: RolloutEvent) -> str:
    """Return an entry of the history in one line."""
    moment = f"{event.at:%H:%M:%S}" if event.at else "        "
    actor = f" (by {event.actor})" if event.actor else ""
    return printable(f"{moment}  {event.cluster or '-':<16} {event.kind:<14} {event.message}{actor}")
