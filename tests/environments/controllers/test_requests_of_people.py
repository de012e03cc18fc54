"""Requests of people in the annotations of an environment: to keep it longer, and to deploy it again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kapsa.environments.resources import Environment
from tests.environments.tenant import BUILD, Tenant, image

pytestmark = pytest.mark.virtual_time

HOUR = 3600
DEPLOYMENT, JOB = "apps/v1/Deployment", "batch/v1/Job"


async def annotate(tenant: Tenant, name: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {f"catalyst.dev/{name}": value}}}
    await tenant.client.patch(Environment, "one", patch, namespace=tenant.home)


async def template(tenant: Tenant) -> dict[str, Any]:
    web = await tenant.client.get(DEPLOYMENT, "web", namespace=tenant.namespace_of("one"))
    pods: dict[str, Any] = web["spec"]["template"]
    return pods


@pytest.mark.long
async def test_an_environment_is_kept_until_the_time_that_a_person_sets(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(ttl="1h")
    expires = (await tenant.ready()).status.expires_at
    assert expires is not None
    until = (expires + timedelta(hours=3)).isoformat()
    await annotate(tenant, "keep-until", until)
    await tenant.clock.sleep(2 * HOUR)
    kept = await tenant.get()
    assert kept.status.expires_at == expires + timedelta(hours=3)
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home, seconds=4 * HOUR)


async def test_a_time_before_the_end_of_the_ttl_does_not_shorten_it(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(ttl="2h")
    expires = (await tenant.ready()).status.expires_at
    await annotate(tenant, "keep-until", "2001-01-01T00:00:00Z")
    await tenant.sandbox.at_rest()
    assert (await tenant.get()).status.expires_at == expires


async def test_a_text_that_is_not_a_time_is_reported_and_ignored(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(ttl="1h")
    expires = (await tenant.ready()).status.expires_at
    await annotate(tenant, "keep-until", "tomorrow")
    await tenant.sandbox.event("KeepUntilInvalid", "is ignored")
    assert (await tenant.get()).status.expires_at == expires


async def test_a_request_replaces_the_pods_once(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    before = await template(tenant)
    await annotate(tenant, "redeploy-requested", "first")

    async def replaced() -> bool:
        return (await template(tenant)) != before

    await tenant.sandbox.until(replaced, "the Deployment has another pod template")
    assert (await template(tenant))["metadata"]["annotations"]["catalyst.dev/redeploy-requested"] == "first"
    again = await tenant.ready()
    assert again.status.redeploy_request == "first"
    await tenant.sandbox.at_rest()


async def test_a_request_retries_a_failed_build_once(tenant: Tenant) -> None:
    workloads = tenant.sandbox.harness.cluster.workloads
    workloads.crash("kapsa-builds/*", exit_code=1)
    await tenant.project(**BUILD)
    await tenant.environment()
    failed = await tenant.reaches("one", "BuildReady", "False", "BuildFailed")
    assert failed.status.failure is not None
    assert "kapsa environments redeploy" in failed.status.failure.hint
    workloads.heal()
    await annotate(tenant, "redeploy-requested", "now")
    await tenant.reaches("one", "BuildReady", "False", "ImageNotPushed", seconds=600)
    assert (await tenant.get()).status.redeploy_request == "now"
    tenant.systems.images.push(image("one"))
    await tenant.ready(seconds=600)


async def test_a_request_retries_a_failed_build_that_another_environment_started(tenant: Tenant) -> None:
    workloads = tenant.sandbox.harness.cluster.workloads
    workloads.crash("kapsa-builds/*", exit_code=1)
    await tenant.project(**BUILD)
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "BuildFailed")
    await tenant.environment("two")
    await tenant.reaches("two", "BuildReady", "False", "BuildFailed")
    workloads.heal()
    request = {"metadata": {"annotations": {"catalyst.dev/redeploy-requested": "now"}}}
    await tenant.client.patch(Environment, "two", request, namespace=tenant.home)
    for name in ("one", "two"):
        await tenant.reaches(name, "BuildReady", "False", "ImageNotPushed", seconds=600)


async def test_a_request_that_was_carried_out_retries_no_later_failure(tenant: Tenant) -> None:
    await tenant.project(**BUILD)
    tenant.systems.images.push(image("one"))
    await tenant.environment()
    await annotate(tenant, "redeploy-requested", "now")
    await tenant.ready()
    await tenant.sandbox.at_rest()
    tenant.sandbox.harness.cluster.workloads.crash("kapsa-builds/*", exit_code=1)
    await tenant.environment(commit="two")
    await tenant.reaches("one", "BuildReady", "False", "BuildFailed")
    (job,) = (await tenant.client.list(JOB, namespace="kapsa-builds")).items
    await tenant.clock.sleep(HOUR)
    assert [
        each["metadata"]["uid"] for each in (await tenant.client.list(JOB, namespace="kapsa-builds")).items
    ] == [job["metadata"]["uid"]]
