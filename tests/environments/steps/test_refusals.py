"""Rejections and errors of the API server are reported in the environment's status."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kapsa.adapters.errors import Refused
from kapsa.devcluster.faults import Answer, FaultPlan, FaultRule
from kapsa.environments.resources import Environment
from tests.environments.fakes import deployment, service
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant


@pytest.fixture
def tenant(sandbox: Sandbox) -> Tenant:
    return Tenant(sandbox)


async def failed(tenant: Tenant, condition: str, reason: str) -> str:
    """Return the message of a failure in the status."""
    environment = await tenant.reaches("one", condition, "False", reason)
    assert environment.status.phase == "Failed"
    assert environment.status.failure is not None
    assert environment.status.failure.hint
    return environment.status.failure.message


async def test_a_field_of_a_wrong_type_is_named_and_the_next_commit_that_has_it_right_is_deployed(
    tenant: Tenant,
) -> None:
    tenant.systems.renderer.objects = [deployment("web", "app:1", replicas="many"), service("web")]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    message = await failed(tenant, "DeploymentReady", "Rejected")
    assert "the API server rejected Deployment web" in message
    assert ".spec.replicas" in message
    tenant.systems.renderer.objects = [deployment("web", "app:1"), service("web")]
    await tenant.environment(commit="two")
    await tenant.ready()


def daemon_set(**pods: Any) -> dict[str, Any]:
    """Return a DaemonSet whose pod template has these fields."""
    made = copy.deepcopy({**deployment("web", "app:1"), "kind": "DaemonSet"})
    del made["spec"]["replicas"]
    made["spec"]["template"] |= pods
    return made


def pods_with(**fields: Any) -> dict[str, Any]:
    """Return the spec of a pod template with these fields."""
    return {"spec": {**daemon_set()["spec"]["template"]["spec"], **fields}}


@pytest.mark.parametrize(
    ("field", "pods"),
    [
        ("volumes", pods_with(volumes=[{"name": "files", "image": "app:1"}])),
        ("metadata", {"metadata": "text"}),
    ],
)
async def test_a_field_of_a_pod_that_has_a_wrong_type_is_named(
    tenant: Tenant, field: str, pods: dict[str, Any]
) -> None:
    await deploy(tenant, daemon_set())
    tenant.systems.renderer.objects = [daemon_set(**pods), service("web")]
    request = {"metadata": {"annotations": {"catalyst.dev/redeploy-requested": "now"}}}
    await tenant.client.patch(Environment, "one", request, namespace=tenant.home)
    message = await failed(tenant, "DeploymentReady", "Rejected")
    assert "the API server rejected DaemonSet web" in message
    assert field in message


async def deploy(tenant: Tenant, workload: dict[str, Any]) -> None:
    tenant.systems.renderer.objects = [workload, service("web")]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()


async def test_a_node_selector_of_a_wrong_type_does_not_keep_an_environment_awake(tenant: Tenant) -> None:
    await deploy(tenant, daemon_set())
    tenant.systems.renderer.objects = [daemon_set(**pods_with(nodeSelector="text")), service("web")]
    await tenant.environment(suspended=True)
    await tenant.reaches("one", "Ready", "False", "Suspended")


async def test_a_field_that_does_not_exist_is_named(tenant: Tenant) -> None:
    tenant.systems.renderer.objects = [deployment("web", "app:1", replicsa=2), service("web")]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    assert ".spec.replicsa" in await failed(tenant, "DeploymentReady", "Rejected")


async def test_a_quota_that_the_api_server_rejects_is_reported(tenant: Tenant) -> None:
    await tenant.start()
    await tenant.project(resources={"defaultQuota": {"cpu": "-1"}})
    await tenant.environment()
    assert "ResourceQuota" in await failed(tenant, "NamespaceReady", "Rejected")
    await tenant.project(resources={"defaultQuota": {"cpu": "4"}})
    await tenant.ready()


@pytest.mark.virtual_time
async def test_a_missing_right_is_reported_and_used_once_it_is_granted(
    tenant: Tenant, faults: FaultPlan
) -> None:
    words = 'User "kapsa" cannot patch resource "networkpolicies"'
    refusal = Answer(code=403, reason="Forbidden", message=words)
    faults.add(FaultRule(action=refusal, verb="patch", resource="networkpolicies", times=0))
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    assert words in await failed(tenant, "NamespaceReady", "Rejected")
    faults.clear()
    await tenant.ready()


@pytest.mark.virtual_time
async def test_a_webhook_of_the_cluster_that_keeps_failing_is_reported(
    tenant: Tenant, faults: FaultPlan
) -> None:
    failing = Answer(code=500, reason="InternalError", message="failed calling webhook policy.example.com")
    faults.add(FaultRule(action=failing, verb="patch", resource="services", times=0))
    await tenant.start()
    await tenant.project()
    await tenant.environment()

    async def reported() -> bool:
        environment = await tenant.sandbox.get(Environment, "one", namespace=tenant.home)
        condition = environment.status.condition("DeploymentReady") if environment is not None else None
        return condition is not None and condition.reason == "ApiServerTrouble"

    await tenant.sandbox.until(reported, "the error is reported")
    condition = (await tenant.get()).status.condition("DeploymentReady")
    assert condition is not None
    assert "webhook policy.example.com" in condition.message
    faults.clear()
    await tenant.ready(seconds=1200)


@pytest.mark.virtual_time
async def test_an_environment_that_is_ready_stays_so_when_the_api_server_stumbles(
    tenant: Tenant, faults: FaultPlan
) -> None:
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    stumble = Answer(code=500, reason="InternalError", message="etcd has no leader")
    rule = faults.add(FaultRule(action=stumble, verb="patch", resource="limitranges", client="operator"))
    drift: dict[str, Any] = {"spec": {"limits": []}}
    before = len(tenant.sandbox.writes())
    await tenant.client.patch("v1/LimitRange", "kapsa-limits", drift, namespace=tenant.namespace_of("one"))
    await tenant.sandbox.at_rest()
    assert rule.fired == 1
    assert {each.call.resource for each in tenant.sandbox.writes()[before:]} == {"limitranges"}
    assert (await tenant.get()).status.is_true("Ready")


@pytest.mark.virtual_time
async def test_a_failure_is_an_event_once_and_again_when_it_comes_back(tenant: Tenant) -> None:
    tenant.systems.renderer.error = Refused("helm: no chart here", hint="Commit it", reason="RenderFailed")
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await failed(tenant, "DeploymentReady", "RenderFailed")
    await tenant.clock.sleep(600)
    assert await events(tenant) == [("RenderFailed", "render: helm: no chart here", 1)]
    tenant.systems.renderer.error = None
    await tenant.ready()
    tenant.systems.renderer.error = Refused("helm: no chart here", hint="Commit it", reason="RenderFailed")
    await tenant.environment(commit="two")
    await failed(tenant, "DeploymentReady", "RenderFailed")
    await tenant.clock.sleep(60)
    assert sum(count for _, _, count in await events(tenant)) == 2


async def events(tenant: Tenant) -> list[tuple[str, str, int]]:
    """Return the warnings about the environment: reason, text and count."""
    listed = (await tenant.client.list("events.k8s.io/v1/Event", namespace=tenant.home)).items
    return [
        (each["reason"], each["note"], (each.get("series") or {}).get("count", 1))
        for each in listed
        if each["type"] == "Warning"
    ]
