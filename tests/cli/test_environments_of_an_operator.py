"""`kapsa environments` with an operator that does what the commands ask for. On both engines, in real time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from kapsa.cli.environments.command import app
from kapsa.devcluster import DevCluster
from kapsa.environments.names import REDEPLOY_REQUESTED
from kapsa.runtime import SystemClock
from kapsa.runtime.testing import Harness
from tests.environments.fakes import commit_of
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.long

DEPLOYMENT = "apps/v1/Deployment"


@pytest_asyncio.fixture
async def tenant(cluster: DevCluster) -> AsyncIterator[Tenant]:
    """A tenant with a project, and an operator in this process."""
    harness = Harness(cluster, clock=SystemClock())
    try:
        made = Tenant(Sandbox(harness))
        await made.sandbox.prepare()
        await made.start()
        await made.project()
        yield made
    finally:
        await harness.close()


async def kapsa(tenant: Tenant, *arguments: str) -> str:
    """Run a command in the namespace of the project. Returns its standard output."""
    kubeconfig = tenant.sandbox.harness.cluster.kubeconfig
    options = [*arguments, "-n", tenant.home, f"--kubeconfig={kubeconfig}"]
    result = await asyncio.to_thread(CliRunner().invoke, app, options)
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return result.stdout


async def web(tenant: Tenant) -> Any:
    return await tenant.client.get(DEPLOYMENT, "web", namespace=tenant.namespace_of("one"))


async def test_an_environment_sleeps_wakes_is_deployed_again_and_lives_longer_by_the_commands(
    tenant: Tenant,
) -> None:
    await tenant.environment(ttl="2h")
    ready = await tenant.ready()
    assert (await kapsa(tenant, "open", "one", "--print")).strip() == ready.status.url
    await kapsa(tenant, "sleep", "one")
    await tenant.reaches("one", "Ready", "False", "Suspended")
    assert (await web(tenant))["spec"]["replicas"] == 0
    assert "Suspended" in await kapsa(tenant, "ls")
    await kapsa(tenant, "wake", "one")
    await tenant.ready()
    assert (await web(tenant))["spec"]["replicas"] == 1
    await kapsa(tenant, "redeploy", "one")

    async def replaced() -> bool:
        annotations = (await web(tenant))["spec"]["template"]["metadata"].get("annotations") or {}
        return REDEPLOY_REQUESTED in annotations

    await tenant.sandbox.until(replaced, "the pods are replaced", seconds=180)
    before = (await tenant.ready()).status.expires_at
    assert before is not None
    await kapsa(tenant, "extend", "one", "--for", "24h")

    async def extended() -> bool:
        expires = (await tenant.get()).status.expires_at
        return expires is not None and expires >= before + timedelta(hours=20)

    await tenant.sandbox.until(extended, "it expires a day later", seconds=180)


async def test_a_fork_runs_once_a_person_approves_it_by_the_command(tenant: Tenant) -> None:
    await tenant.environment(source={"commitSha": commit_of("fork"), "prNumber": 7})
    await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    assert "ApprovalRequired" in await kapsa(tenant, "ls")
    await kapsa(tenant, "approve", "one", "--yes")
    await tenant.ready()
    shown = json.loads(await kapsa(tenant, "describe", "one", "-o", "json"))
    assert shown["environment"]["status"]["phase"] == "Ready"
    assert (await web(tenant))["spec"]["replicas"] == 1
