"""Withdrawals by an administrator: they reach an environment, whatever its team writes to prevent them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from kapsa.adapters.errors import Refused, Unreachable
from kapsa.devcluster.faults import Answer, FaultPlan, FaultRule
from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.resources import DomainPool, Environment, Project
from kapsa.environments.tenancy.roles import people_roles
from tests.environments.fakes import commit_of, deployment, service
from tests.environments.tenant import Tenant, secret, shared_registry

GROUP = "rbac.authorization.k8s.io"
ROLE_BINDING = f"{GROUP}/v1/RoleBinding"
DEPLOYMENT, POLICY = "apps/v1/Deployment", "networking.k8s.io/v1/NetworkPolicy"
Freeze = Callable[[Tenant], Awaitable[None]]


async def unresolvable_commit(tenant: Tenant) -> None:
    await patch(tenant, {"spec": {"source": {"commitSha": "deadbee"}}})
    await tenant.reaches("one", "Ready", "False")


async def quota_above_the_ceiling(tenant: Tenant) -> None:
    await set_quota(tenant, "100000")
    await tenant.reaches("one", "NamespaceReady", "False", "QuotaAboveCeiling")


async def quota_that_is_rejected(tenant: Tenant) -> None:
    await set_quota(tenant, "-1")
    await tenant.reaches("one", "NamespaceReady", "False", "Rejected")


async def config_map_that_does_not_exist(tenant: Tenant) -> None:
    await patch(tenant, {"spec": {"config": {"configRefs": [{"name": "nothing"}]}}})
    await tenant.reaches("one", "NamespaceReady", "False", "ConfigMapMissing")


async def config_map_that_is_reserved(tenant: Tenant) -> None:
    await patch(tenant, {"spec": {"config": {"configRefs": [{"name": "kube-root-ca.crt"}]}}})
    await tenant.reaches("one", "NamespaceReady", "False", "ObjectRefused")


async def another_project(tenant: Tenant) -> None:
    await patch(tenant, {"spec": {"projectRef": {"name": "x"}}})
    await tenant.reaches("one", "Ready", "False", "ProjectMissing")


async def time_that_is_none(tenant: Tenant) -> None:
    await patch(tenant, {"spec": {"source": {"committedAt": "2026-01-01T00:00:00+99:99"}}})


FREEZES: Sequence[Freeze] = (
    unresolvable_commit,
    quota_above_the_ceiling,
    quota_that_is_rejected,
    config_map_that_does_not_exist,
    config_map_that_is_reserved,
    another_project,
    time_that_is_none,
)
"""Ways to keep an environment from its next version, by its team or by accident."""


async def set_quota(tenant: Tenant, cpu: str) -> None:
    content = {"spec": {"resources": {"defaultQuota": {"cpu": cpu}}}}
    await tenant.client.patch(Project, "app", content, namespace=tenant.name)


async def patch(tenant: Tenant, content: dict[str, Any]) -> None:
    await tenant.client.patch(Environment, "one", content, namespace=tenant.home)


async def pool(tenant: Tenant, *services: dict[str, Any]) -> None:
    name = f"pool-{tenant.sandbox.unique}"
    spec = {"baseDomains": [f"{name}.example.com"], "sharedServices": list(services)}
    await tenant.sandbox.apply(DomainPool, name, spec)


async def person(tenant: Tenant) -> None:
    """Bind a person to `edit` in the namespace of the team."""
    for role in people_roles():
        await tenant.client.apply(role, field_manager="person", force=True)
    binding = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "people", "namespace": tenant.name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "leaver", "apiGroup": GROUP}],
    }
    await tenant.client.apply(binding, field_manager="person", force=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "freeze", [unresolvable_commit, quota_above_the_ceiling, quota_that_is_rejected, another_project]
)
async def test_shared_services_and_access_are_withdrawn_from_an_environment_that_fails(
    tenant: Tenant, freeze: Freeze
) -> None:
    await person(tenant)
    await pool(tenant, {"name": "postgres", "cidrs": ["10.20.0.0/28"]})
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    inside = tenant.namespace_of("one")
    await tenant.sandbox.exists(POLICY, "kapsa-shared-services", namespace=inside)
    await tenant.sandbox.exists(ROLE_BINDING, "kapsa-pods-edit", namespace=inside)
    await freeze(tenant)
    await pool(tenant)
    await tenant.client.delete(ROLE_BINDING, "people", namespace=tenant.name)
    await tenant.sandbox.gone(POLICY, "kapsa-shared-services", namespace=inside)
    await tenant.sandbox.gone(ROLE_BINDING, "kapsa-pods-edit", namespace=inside)


async def test_an_environment_whose_project_asks_for_too_much_has_the_default_quota(tenant: Tenant) -> None:
    await tenant.project(resources={"defaultQuota": {"cpu": "16"}})
    await tenant.environment()
    await tenant.ready()
    await quota_above_the_ceiling(tenant)
    quota = await tenant.client.get("v1/ResourceQuota", "kapsa-quota", namespace=tenant.namespace_of("one"))
    assert quota["spec"]["hard"]["limits.cpu"] == "8"


async def replicas(tenant: Tenant) -> int:
    web = await tenant.client.get(DEPLOYMENT, "web", namespace=tenant.namespace_of("one"))
    return int(web["spec"]["replicas"])


async def falls_asleep(tenant: Tenant) -> None:
    async def stopped() -> bool:
        return await replicas(tenant) == 0

    await patch(tenant, {"spec": {"suspended": True}})
    await tenant.sandbox.until(stopped, "no pod is left")


async def test_an_environment_whose_next_commit_is_unknown_can_be_put_to_sleep(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await unresolvable_commit(tenant)
    await falls_asleep(tenant)
    await tenant.reaches("one", "Ready", "False", "Suspended")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("freeze", FREEZES)
async def test_an_environment_that_fails_can_be_put_to_sleep(tenant: Tenant, freeze: Freeze) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await freeze(tenant)
    await falls_asleep(tenant)


async def test_an_environment_that_fell_asleep_while_it_failed_wakes_as_it_was(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    before = await template(tenant)
    await config_map_that_does_not_exist(tenant)
    await falls_asleep(tenant)
    assert await template(tenant) == before
    await patch(tenant, {"spec": {"config": {"configRefs": []}, "suspended": False}})
    await tenant.ready()
    assert (await replicas(tenant), await template(tenant)) == (1, before)
    reverted = await tenant.sandbox.harness.events(reason="DriftCorrected")
    assert [each for each in reverted if each["metadata"]["namespace"] == tenant.home] == []


async def template(tenant: Tenant) -> Any:
    web = await tenant.client.get(DEPLOYMENT, "web", namespace=tenant.namespace_of("one"))
    return web["spec"]["template"]


async def start_job(tenant: Tenant, name: str, **metadata: Any) -> None:
    """Create a Job whose pod waits for a node."""
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"example.com/none": "true"},
        "containers": [{"name": "report", "image": "report:1"}],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": tenant.namespace_of("one"), **metadata},
        "spec": {"template": {"spec": pod}},
    }
    await tenant.client.create(job)


async def pods_of_job(tenant: Tenant, name: str) -> list[Any]:
    listed = await tenant.client.list(
        "v1/Pod", namespace=tenant.namespace_of("one"), label_selector={"batch.kubernetes.io/job-name": name}
    )
    return list(listed.items)


async def test_jobs_that_a_cron_job_has_started_end_before_an_environment_sleeps(tenant: Tenant) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "report", "image": "report:1"}]}
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "report"},
        "spec": {"schedule": "0 0 29 2 *", "jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }
    tenant.systems.renderer.objects = [deployment("web", "app:1"), service("web"), cron_job]
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    inside = tenant.namespace_of("one")
    live = await tenant.client.get("batch/v1/CronJob", "report", namespace=inside)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "report", "uid": live["metadata"]["uid"]}
    await start_job(tenant, "report-1", ownerReferences=[{**owner, "controller": True}])
    await start_job(tenant, "other")
    for name in ("report-1", "other"):
        await tenant.sandbox.until(lambda name=name: pods_of_job(tenant, name), f"{name} has a pod")
    await patch(tenant, {"spec": {"suspended": True}})
    await tenant.reaches("one", "Ready", "False", "Suspended")
    assert await pods_of_job(tenant, "report-1") == []
    assert await pods_of_job(tenant, "other"), "one that belongs to nobody is left alone"
    await tenant.sandbox.event("JobDeleted", "report-1")
    await patch(tenant, {"spec": {"suspended": False}})
    await tenant.ready()


async def test_an_environment_of_another_project_is_not_reported_as_ready(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await another_project(tenant)
    assert (await tenant.get()).status.phase == "Pending"


@pytest.mark.virtual_time
async def test_an_environment_whose_repository_does_not_respond_can_be_put_to_sleep(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    tenant.systems.renderer.error = Unreachable("git.example.com does not answer")
    await tenant.restart()
    await falls_asleep(tenant)


async def approved_fork(tenant: Tenant) -> None:
    """Deploy an approved commit of a fork, with a Secret of the project."""
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment(source={"commitSha": commit_of("fork"), "prNumber": 7})
    await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    await patch(tenant, {"metadata": {"annotations": {APPROVED_COMMIT: commit_of("fork")}}})
    await tenant.ready()


async def is_stopped(tenant: Tenant) -> None:
    """Wait until nothing of the fork runs, and it has no Secret."""
    inside = tenant.namespace_of("one")
    await tenant.sandbox.gone(DEPLOYMENT, "web", namespace=inside)
    assert (await tenant.client.list("v1/Pod", namespace=inside)).items == []
    await tenant.sandbox.gone("v1/Secret", "settings", namespace=inside)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("freeze", FREEZES)
async def test_an_approval_is_withdrawn_from_an_environment_that_fails(
    tenant: Tenant, freeze: Freeze
) -> None:
    await approved_fork(tenant)
    await freeze(tenant)
    await patch(tenant, {"metadata": {"annotations": {APPROVED_COMMIT: None}}})
    await is_stopped(tenant)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "freeze", [quota_above_the_ceiling, config_map_that_does_not_exist, config_map_that_is_reserved]
)
async def test_a_registry_is_closed_to_an_environment_that_fails(tenant: Tenant, freeze: Freeze) -> None:
    await shared_registry(tenant)
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('one')}")
    registry = {"name": tenant.registry, "imageRepository": f"{tenant.name}/app"}
    await tenant.project(registry=registry, deployment={"type": "image"})
    await tenant.environment()
    await tenant.ready()
    inside = tenant.namespace_of("one")
    await tenant.sandbox.exists("v1/Secret", "kapsa-registry", namespace=inside)
    await freeze(tenant)
    await shared_registry(tenant, allowedNamespaces={"names": ["other"]})
    await tenant.sandbox.gone("v1/Secret", "kapsa-registry", namespace=inside)


async def test_a_registry_is_closed_to_an_environment_that_sleeps_before_its_first_deployment(
    tenant: Tenant,
) -> None:
    await shared_registry(tenant)
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('one')}")
    tenant.systems.renderer.error = Refused("the chart cannot be rendered")
    await tenant.project(registry={"name": tenant.registry, "imageRepository": f"{tenant.name}/app"})
    await tenant.environment()
    failed = await tenant.reaches("one", "DeploymentReady", "False")
    assert failed.status.commit_sha is None
    inside = tenant.namespace_of("one")
    await tenant.sandbox.exists("v1/Secret", "kapsa-registry", namespace=inside)
    await patch(tenant, {"spec": {"suspended": True}})
    await tenant.reaches("one", "Ready", "False", "Suspended")
    await shared_registry(tenant, allowedNamespaces={"names": ["other"]})
    await tenant.sandbox.gone("v1/Secret", "kapsa-registry", namespace=inside)
    asleep = await tenant.reaches("one", "Ready", "False", "Suspended")
    assert (asleep.status.phase, asleep.status.failure) == ("Pending", None)


@pytest.mark.virtual_time
async def test_a_withdrawal_that_the_api_server_refuses_is_reported_and_repeated_while_asleep(
    tenant: Tenant, faults: FaultPlan
) -> None:
    await shared_registry(tenant)
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('one')}")
    tenant.systems.renderer.error = Refused("the chart cannot be rendered")
    await tenant.project(registry={"name": tenant.registry, "imageRepository": f"{tenant.name}/app"})
    await tenant.environment()
    await tenant.reaches("one", "DeploymentReady", "False")
    await patch(tenant, {"spec": {"suspended": True}})
    await tenant.reaches("one", "Ready", "False", "Suspended")
    refusal = Answer(code=403, reason="Forbidden", message="a policy keeps secrets")
    faults.add(FaultRule(action=refusal, verb="delete", resource="secrets", name="kapsa-registry", times=0))
    await shared_registry(tenant, allowedNamespaces={"names": ["other"]})
    refused = await tenant.reaches("one", "NamespaceReady", "False", "Rejected")
    assert refused.status.failure is not None
    faults.clear()
    inside = tenant.namespace_of("one")
    await tenant.sandbox.gone("v1/Secret", "kapsa-registry", namespace=inside, seconds=300)
    await tenant.reaches("one", "Ready", "False", "Suspended")


@pytest.mark.virtual_time
async def test_an_approval_is_withdrawn_while_the_repository_does_not_respond(tenant: Tenant) -> None:
    await approved_fork(tenant)
    tenant.systems.git.error = Unreachable("git.example.com does not answer")
    await tenant.restart()
    await patch(tenant, {"metadata": {"annotations": {APPROVED_COMMIT: None}}})
    await is_stopped(tenant)
