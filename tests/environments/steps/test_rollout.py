"""Rollouts have a deadline, Jobs are replaced, and a suspended environment runs nothing."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.environments.settings import Settings
from tests.environments.fakes import deployment, service
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time

JOB, CRON_JOB, DAEMON_SET = "batch/v1/Job", "batch/v1/CronJob", "apps/v1/DaemonSet"


@pytest.fixture
def tenant(sandbox: Sandbox) -> Tenant:
    return Tenant(sandbox)


def pod(image: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "data"}},
        "spec": {"containers": [{"name": "app", "image": image}], **spec},
    }


def stateful_set(image: str = "data:1") -> dict[str, Any]:
    spec = {
        "serviceName": "data",
        "selector": {"matchLabels": {"app": "data"}},
        "template": pod(image),
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "data"}, "spec": spec}


def job(image: str) -> dict[str, Any]:
    spec = {"template": pod(image, restartPolicy="Never")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"}, "spec": spec}


async def test_a_rollout_that_has_no_deadline_of_its_own_fails_at_ours(tenant: Tenant) -> None:
    """A StatefulSet has no progress deadline of its own."""
    tenant.systems.renderer.objects = [stateful_set(), deployment("web", "app:1"), service("web")]
    tenant.sandbox.harness.cluster.workloads.crash(f"{tenant.namespace_of('one')}/data-*", exit_code=1)
    await tenant.start(Settings(rollout_timeout=120))
    await tenant.project()
    await tenant.environment()
    await tenant.reaches("one", "DeploymentReady", "False", "RollingOut")
    await tenant.clock.sleep(100)
    assert (await tenant.get()).status.phase == "Deploying"
    failed = await tenant.reaches("one", "DeploymentReady", "False", "RolloutTimedOut", seconds=60)
    failure = failed.status.failure
    assert failure is not None
    assert (failure.step, failure.object) == ("apply", "StatefulSet data")
    assert "0 of 1 replicas are ready" in failure.message


async def test_a_namespace_that_is_created_again_starts_a_new_rollout(tenant: Tenant) -> None:
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    before = await tenant.ready()
    await tenant.clock.sleep(2)
    await tenant.client.delete("v1/Namespace", tenant.namespace_of("one"))

    async def again() -> bool:
        status = (await tenant.get()).status
        return status.phase == "Ready" and status.namespace != before.status.namespace

    await tenant.sandbox.until(again, "the environment is ready in a new namespace", seconds=120)
    rollout, first = (await tenant.get()).status.rollout, before.status.rollout
    assert rollout is not None
    assert first is not None
    assert rollout.started_at > first.started_at


async def test_a_new_version_starts_a_new_deadline(tenant: Tenant) -> None:
    tenant.systems.renderer.objects = [stateful_set(), deployment("web", "app:1"), service("web")]
    tenant.sandbox.harness.cluster.workloads.crash(f"{tenant.namespace_of('one')}/data-*", exit_code=1)
    await tenant.start(Settings(rollout_timeout=120))
    await tenant.project()
    await tenant.environment()
    await tenant.reaches("one", "DeploymentReady", "False", "RolloutTimedOut", seconds=200)
    tenant.systems.renderer.objects = [stateful_set("data:2"), deployment("web", "app:1"), service("web")]
    await tenant.environment(commit="two")
    await tenant.reaches("one", "DeploymentReady", "False", "RollingOut")
    await tenant.clock.sleep(90)
    assert (await tenant.get()).status.phase == "Deploying"


async def test_a_changed_job_is_replaced(tenant: Tenant) -> None:
    tenant.systems.renderer.objects = [job("migrate:1"), deployment("web", "app:1"), service("web")]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    first = await tenant.client.get(JOB, "migrate", namespace=tenant.namespace_of("one"))
    tenant.systems.renderer.objects = [job("migrate:2"), deployment("web", "app:2"), service("web")]
    await tenant.environment(commit="two")
    await tenant.ready()
    second = await tenant.client.get(JOB, "migrate", namespace=tenant.namespace_of("one"))
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["spec"]["template"]["spec"]["containers"][0]["image"] == "migrate:2"


async def test_a_suspended_environment_runs_neither_jobs_nor_daemons(tenant: Tenant) -> None:
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job("nightly:1")["spec"]}},
    }
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "data"}}, "template": pod("agent:1")},
    }
    tenant.systems.renderer.objects = [
        cron,
        daemon,
        stateful_set(),
        deployment("web", "app:1"),
        service("web"),
    ]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    namespace = tenant.namespace_of("one")
    await tenant.environment(suspended=True)
    await tenant.reaches("one", "Ready", "False", "Suspended")
    assert (await tenant.client.get(CRON_JOB, "nightly", namespace=namespace))["spec"]["suspend"] is True
    assert (await tenant.client.list("v1/Pod", namespace=namespace)).items == []
    await tenant.environment(suspended=False)
    await tenant.ready()
    assert not (await tenant.client.get(CRON_JOB, "nightly", namespace=namespace))["spec"].get("suspend")
    agent = await tenant.client.get(DAEMON_SET, "agent", namespace=namespace)
    assert agent["status"]["numberAvailable"] == agent["status"]["desiredNumberScheduled"] > 0


async def test_an_application_that_prints_its_secrets_gives_them_away_in_no_status(tenant: Tenant) -> None:
    password = "correct horse battery"  # nothing about it looks like a secret
    settings = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "settings", "namespace": tenant.name},
        "stringData": {"DATABASE": password, "LEVEL": "info"},
    }
    await tenant.client.create(settings)
    workloads = tenant.sandbox.harness.cluster.workloads
    workloads.crash(f"{tenant.namespace_of('one')}/*", exit_code=1)
    workloads.logs(f"{tenant.namespace_of('one')}/*", f"info: connecting with {password}\nno database\n")
    await tenant.start()
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment()
    failed = await tenant.reaches("one", "DeploymentReady", "False", "ProgressDeadlineExceeded", seconds=900)
    assert failed.status.failure is not None
    assert failed.status.failure.log_tail == "info: connecting with ***\nno database"
    assert password not in str(failed.to_dict())
