"""An upgrade: the operator takes over what an earlier version left, without new pods and without a gap."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.environments.resources import Environment, Project
from tests.environments.fakes import commit_of
from tests.environments.tenant import Tenant, secret

pytestmark = pytest.mark.virtual_time

NEWER: dict[type[Any], tuple[str, ...]] = {
    Environment: ("trustedCommits", "builtImages", "keptUntil", "redeployRequest", "urls", "failure"),
    Project: ("lastPullRequest", "queue"),
}
"""Fields of statuses that the first version did not write."""
DEPLOYMENT = "apps/v1/Deployment"


async def older(tenant: Tenant, kind: type[Any], name: str, namespace: str) -> None:
    """Leave the status of a resource as the first version wrote it."""
    content = {"status": dict.fromkeys(NEWER[kind])}
    await tenant.client.patch(kind, name, content, namespace=namespace, subresource="status")


async def web(tenant: Tenant, environment: str) -> dict[str, Any]:
    return await tenant.client.get(DEPLOYMENT, "web", namespace=tenant.namespace_of(environment))


async def test_environments_with_the_status_of_an_earlier_version_keep_serving(tenant: Tenant) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    tenant.systems.git.push("login")
    tenant.systems.git.push("theirs", "pull request")
    await tenant.project(secrets=[{"name": "settings"}], previewEnvironments={"enabled": True})
    await tenant.environment()
    await tenant.environment("pinned", source={"commitSha": commit_of("pull request"), "prNumber": 7})
    names = ("one", "pinned", "login")
    before = {}
    for name in names:
        await tenant.ready(name)
        before[name] = await web(tenant, name)
    await tenant.sandbox.harness.stop()
    for name in names:
        await older(tenant, Environment, name, tenant.home)
    await older(tenant, Project, "app", tenant.name)
    tenant.systems.git.push("theirs", "moved on")
    tenant.systems.git.history.add(commit_of("pull request"))

    await tenant.start()
    await tenant.sandbox.at_rest()
    for name in names:
        status = (await tenant.ready(name)).status
        assert (status.phase, status.failure) == ("Ready", None)
        live = await web(tenant, name)
        assert live["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert live["metadata"]["generation"] == before[name]["metadata"]["generation"], "no pod is replaced"
        assert await tenant.client.get("v1/Secret", "settings", namespace=tenant.namespace_of(name))
    assert (await tenant.project_now()).status.queue == []
