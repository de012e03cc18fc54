"""The audit trail: each transition is an event on the Environment and on its Project, and one log line."""

from __future__ import annotations

import itertools
from typing import Any

from structlog.testing import capture_logs

from kapsa.environments.resources import Environment
from tests.environments.tenant import Tenant


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


async def test_a_failure_is_recorded_on_the_project_with_its_reason(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(ingress={"annotations": {"nginx.ingress.kubernetes.io/server-snippet": "x"}})
    failed = await tenant.reaches("one", "IngressReady", "False")
    assert failed.status.failure is not None
    await tenant.sandbox.event(failed.status.failure.reason, "Environment one: route: ")
