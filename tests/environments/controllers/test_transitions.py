"""The audit trail: each transition is an event on the Environment and on its Project, and one log line."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from kapsa.environments.controllers.transitions import transitions
from kapsa.environments.resources import Environment, EnvironmentStatus
from kapsa.runtime import Condition
from tests.environments.fake_controllers import closed_nodes
from tests.environments.tenant import BUILD, Tenant, image

POLLED = {"repositoryUrl": "https://git.example.com/org/app", "pollInterval": "60s"}


async def trail(tenant: Tenant, kind: str, name: str) -> list[str]:
    """Return the reasons of the events on an object, the oldest first."""
    events = await tenant.sandbox.harness.events(name=name)
    own = [each for each in events if each["regarding"]["kind"] == kind]
    return [each["reason"] for each in own if each["regarding"]["namespace"] in (tenant.name, tenant.home)]


async def test_each_transition_leaves_one_event_on_the_environment_and_on_its_project(tenant: Tenant) -> None:
    await tenant.project()
    with capture_logs() as logs:
        await tenant.environment()
        await tenant.ready()
        await tenant.environment(suspended=True)
        await tenant.reaches("one", "Ready", "False", "Suspended")
        await tenant.environment(suspended=False)
        await tenant.ready()
        await tenant.client.delete(Environment, "one", namespace=tenant.home)
        await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
    expected = ["CommitSeen", "Deployed", "Ready", "Asleep", "Awake", "Ready", "Deleted"]

    async def has_trail(kind: str, name: str) -> bool:
        # Events of the same note are one event with a count.
        return set(await trail(tenant, kind, name)) >= set(expected)

    await tenant.sandbox.until(
        lambda: has_trail("Environment", "one"), "the environment has its trail", seconds=300
    )
    await tenant.sandbox.until(lambda: has_trail("Project", "app"), "the project has its trail", seconds=300)
    lines: list[Any] = [each["transition"] for each in logs if each["event"] == "environment changed"]
    # A run that a conflict repeats records its transition again.
    assert [each for each, _ in itertools.groupby(lines)] == expected


@pytest.mark.virtual_time
async def test_each_transition_is_one_event_and_one_log_line_however_often_the_environment_runs(
    tenant: Tenant,
) -> None:
    await tenant.project()
    with capture_logs() as logs:
        await tenant.environment()
        await tenant.ready()
        await tenant.environment(suspended=True)
        await tenant.reaches("one", "Ready", "False", "Suspended")
        await tenant.restart()
        await tenant.clock.sleep(3600)
        await tenant.environment(suspended=False)
        await tenant.ready()
        await tenant.restart()
        await tenant.clock.sleep(3600)
        await tenant.client.delete(Environment, "one", namespace=tenant.home)
        await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
        await tenant.sandbox.event("Deleted", "Environment one: ")
    expected = ["CommitSeen", "Deployed", "Ready", "Asleep", "Awake", "Ready", "Deleted"]
    lines: list[Any] = [each["transition"] for each in logs if each["event"] == "environment changed"]
    assert lines == expected
    for kind, name in (("Environment", "one"), ("Project", "app")):
        assert await counted(tenant, kind, name, expected) == Counter(expected)


async def counted(tenant: Tenant, kind: str, name: str, reasons: Sequence[str]) -> Counter[str]:
    """Return how often each of these reasons was recorded on an object. A repeated event is one with a count."""
    counts: Counter[str] = Counter()
    for each in await tenant.sandbox.harness.events(name=name):
        if each["regarding"]["kind"] == kind and each["reason"] in reasons:
            counts[each["reason"]] += (each.get("series") or {}).get("count", 1)
    return counts


def logged(logs: Sequence[Any], transition: str) -> list[str]:
    """Return the notes of the log lines about a transition; those that a conflict repeats once."""
    notes = [each["note"] for each in logs if each.get("transition") == transition]
    return [each for each, _ in itertools.groupby(notes)]


async def test_a_failure_is_recorded_on_the_project_with_its_reason(tenant: Tenant) -> None:
    await tenant.project()
    with capture_logs() as logs:
        await tenant.environment(ingress={"annotations": {"nginx.ingress.kubernetes.io/server-snippet": "x"}})
        failed = await tenant.reaches("one", "IngressReady", "False")
    assert failed.status.failure is not None
    (line,) = logged(logs, failed.status.failure.reason)
    assert line == f"route: {failed.status.failure.message}"
    await tenant.sandbox.event(failed.status.failure.reason, "Environment one: route: ")


async def test_a_commit_that_cannot_be_found_leaves_an_event_on_the_environment_and_on_its_project(
    tenant: Tenant,
) -> None:
    await tenant.project()
    await tenant.environment(source={"commitSha": "deadbee"})
    failed = await tenant.reaches("one", "Ready", "False")
    assert failed.status.failure is not None
    event = await tenant.sandbox.event(failed.status.failure.reason, "render: no branch")
    assert (event["regarding"]["kind"], event["type"]) == ("Environment", "Warning")
    event = await tenant.sandbox.event(failed.status.failure.reason, "Environment one: render: no branch")
    assert event["regarding"]["kind"] == "Project"


async def test_a_build_is_recorded_with_its_image(tenant: Tenant) -> None:
    digest = tenant.systems.images.push(image("one"))
    await tenant.project(**BUILD)
    with capture_logs() as logs:
        await tenant.environment()
        await tenant.ready()
    assert logged(logs, "Built") == [f"image registry.example.com/org/app@{digest}"]
    event = await tenant.sandbox.event(
        "Built", f"Environment one: image registry.example.com/org/app@{digest}"
    )
    assert event["regarding"]["kind"] == "Project"


async def test_a_loss_of_pods_is_one_log_line_and_an_event_on_the_project(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    with capture_logs() as logs:
        async with closed_nodes(tenant.client):
            await tenant.client.delete_collection("v1/Pod", namespace=tenant.namespace_of("one"))
            await tenant.reaches("one", "DeploymentReady", "False", "Degraded")
            await tenant.sandbox.event("Degraded", "Environment one: ")
    (line,) = logged(logs, "Degraded")
    assert "Deployment web" in line


def test_a_loss_of_pods_is_recorded_once_with_its_cause() -> None:
    ready = EnvironmentStatus(phase="Ready")
    cause = Condition(
        type="Ready",
        status="False",
        reason="Degraded",
        message="1 of 2 pods is ready",
        last_transition_time=datetime(2026, 1, 1, tzinfo=UTC),
    )
    degraded = EnvironmentStatus(phase="Degraded", conditions=[cause])
    (made,) = transitions(ready, degraded)
    assert (made.reason, made.note, made.warning) == ("Degraded", "1 of 2 pods is ready", True)
    assert transitions(degraded, degraded) == []


@pytest.mark.virtual_time
async def test_a_deletion_is_recorded_with_its_cause(tenant: Tenant) -> None:
    tenant.systems.git.push("login")
    await tenant.project(previewEnvironments={"enabled": True}, source=POLLED)
    await tenant.environment(ttl="1h")
    await tenant.ready()
    await tenant.ready("login")
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home, seconds=2 * 3600)
    await tenant.sandbox.event("Deleted", "Environment one: deleted because its TTL has passed")
    del tenant.systems.git.branches["login"]
    await tenant.sandbox.gone(Environment, "login", namespace=tenant.home, seconds=3600)
    await tenant.sandbox.event("EnvironmentDeleted", "Environment login: its branch is gone")
    await tenant.sandbox.event("Deleted", "Environment login: deleted by its Project or a person")


async def test_an_event_of_the_project_tells_expiry_from_a_deletion_by_hand(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment("short", ttl="20s")
    await tenant.environment("long", ttl="24h")
    await tenant.ready("long")
    await tenant.client.delete(Environment, "long", namespace=tenant.home)
    for name, cause in (("short", "because its TTL has passed"), ("long", "by its Project or a person")):
        await tenant.sandbox.gone(Environment, name, namespace=tenant.home, seconds=120)
        note = f"Environment {name}: deleted {cause}, with its namespace and host"
        event = await tenant.sandbox.event("Deleted", note)
        assert event["regarding"]["kind"] == "Project"
