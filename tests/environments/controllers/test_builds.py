"""Builds of an Environment: kpack's Image and its status, retries, and the number of requests."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from kapsa.environments.build.engines import BuildEngines
from kapsa.environments.resources import Environment
from kapsa.environments.settings import Settings
from tests.environments.fakes import commit_of
from tests.environments.open_kinds import open_kind
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time

KPACK_IMAGE = "kpack.io/v1alpha2/Image"
JOB = "batch/v1/Job"
REPOSITORY = {"imageRepository": "registry.example.com/org/app"}
DOCKERFILE = {"build": {"strategy": "dockerfile"}, "registry": REPOSITORY, "deployment": {"type": "image"}}
BUILDPACK = {"build": {"strategy": "buildpack"}, "registry": REPOSITORY, "deployment": {"type": "image"}}


@pytest_asyncio.fixture
async def kpack(sandbox: Sandbox) -> Tenant:
    """A tenant on a cluster with kpack."""
    made = Tenant(sandbox)
    made.systems.builds = BuildEngines(Settings())
    await sandbox.client.create(open_kind(KPACK_IMAGE))
    await made.start()
    return made


async def the_image(tenant: Tenant) -> dict[str, Any]:
    (image,) = (await tenant.client.list(KPACK_IMAGE, namespace="kapsa-builds")).items
    return image


async def say(tenant: Tenant, status: str, message: str = "") -> None:
    """Write a status to the Image, as kpack does."""
    image = await the_image(tenant)
    metadata = image["metadata"]
    ready = {"type": "Ready", "status": status, "message": message}
    change = {"status": {"observedGeneration": metadata["generation"], "conditions": [ready]}}
    await tenant.client.patch(
        KPACK_IMAGE, metadata["name"], change, namespace="kapsa-builds", subresource="status"
    )


async def test_what_kpack_builds_is_deployed_once_its_image_is_ready(kpack: Tenant) -> None:
    await kpack.project(**BUILDPACK)
    await kpack.environment()
    building = await kpack.reaches("one", "BuildReady", "False", "Building")
    assert building.status.phase == "Building"
    image = await the_image(kpack)
    assert image["spec"]["source"]["git"]["revision"] == commit_of("one")
    digest = kpack.systems.images.push(image["spec"]["tag"])
    await say(kpack, "True")
    ready = await kpack.ready()
    assert ready.status.image == f"registry.example.com/org/app@{digest}"
    await kpack.sandbox.gone(KPACK_IMAGE, image["metadata"]["name"], namespace="kapsa-builds")


async def test_what_kpack_cannot_build_fails_the_environment_in_kpacks_words(kpack: Tenant) -> None:
    await kpack.project(**BUILDPACK)
    await kpack.environment()
    await kpack.reaches("one", "BuildReady", "False", "Building")
    await say(kpack, "Unknown", "build is executing")
    await kpack.clock.sleep(10)
    assert (await kpack.get()).status.phase == "Building"
    await say(kpack, "False", "no buildpack group passed detection")
    failed = await kpack.reaches("one", "BuildReady", "False", "BuildFailed")
    assert failed.status.failure is not None
    assert "no buildpack group passed detection" in failed.status.failure.message
    assert failed.status.failure.object.startswith("Image app-")


async def test_an_image_of_kpack_for_an_older_commit_goes(kpack: Tenant) -> None:
    await kpack.project(**BUILDPACK)
    await kpack.environment()
    await kpack.reaches("one", "BuildReady", "False", "Building")
    await kpack.environment(commit="two")
    await kpack.clock.sleep(10)
    assert (await the_image(kpack))["spec"]["source"]["git"]["revision"] == commit_of("two")


async def test_without_kpack_a_buildpack_project_says_what_is_missing(tenant: Tenant) -> None:
    tenant.systems.builds = BuildEngines(Settings())
    await tenant.restart()
    await tenant.project(**BUILDPACK)
    await tenant.environment()
    failed = await tenant.reaches("one", "BuildReady", "False", "BuilderMissing")
    assert failed.status.failure is not None
    assert "does not serve kpack.io/v1alpha2/Image" in failed.status.failure.message
    assert "install kpack" in failed.status.failure.hint


async def test_a_failed_build_is_tried_again_once_its_job_is_deleted(tenant: Tenant) -> None:
    workloads = tenant.sandbox.harness.cluster.workloads
    workloads.crash("kapsa-builds/*", exit_code=1)
    await tenant.project(**DOCKERFILE)
    await tenant.environment()
    failed = await tenant.reaches("one", "BuildReady", "False", "BuildFailed")
    assert failed.status.failure is not None
    assert "retry with `kapsa environments redeploy`" in failed.status.failure.hint
    workloads.heal()
    name = failed.status.failure.object.removeprefix("Job ")
    tenant.systems.images.push(f"registry.example.com/org/app:{commit_of('one')}")
    await tenant.client.delete(JOB, name, namespace="kapsa-builds")
    await tenant.ready()


async def test_the_registry_is_not_asked_while_a_build_runs(tenant: Tenant) -> None:
    tenant.sandbox.harness.cluster.workloads.delay(finish=600)
    await tenant.project(**DOCKERFILE)
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "Building")
    asked = len(tenant.systems.images.asked)
    note = {"metadata": {"annotations": {"note": "look again"}}}
    await tenant.client.patch(Environment, "one", note, namespace=tenant.home)
    await tenant.clock.sleep(300)
    assert len(tenant.systems.images.asked) == asked


async def test_builds_run_outside_of_the_environments_namespace_and_quota(tenant: Tenant) -> None:
    tenant.sandbox.harness.cluster.workloads.delay(finish=600)
    await tenant.project(**DOCKERFILE, resources={"defaultQuota": {"pods": 1}})
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "Building")
    assert (await tenant.client.list("v1/Pod", namespace=tenant.namespace_of("one"))).items == []
    assert len((await tenant.client.list("v1/Pod", namespace="kapsa-builds")).items) == 1


async def test_a_build_ends_with_its_environment(tenant: Tenant) -> None:
    tenant.sandbox.harness.cluster.workloads.delay(finish=600)
    await tenant.project(**DOCKERFILE)
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "Building")
    await tenant.client.delete(Environment, "one", namespace=tenant.home)
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
    assert (await tenant.client.list(JOB, namespace="kapsa-builds")).items == []


async def test_builds_are_counted_by_what_became_of_them(tenant: Tenant) -> None:
    workloads = tenant.sandbox.harness.cluster.workloads
    await tenant.project(**DOCKERFILE)
    workloads.crash("kapsa-builds/*", exit_code=1)
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "BuildFailed")
    await tenant.clock.sleep(3600)
    workloads.heal()
    workloads.delay(finish=60)
    await tenant.environment(commit="two")
    await tenant.reaches("one", "BuildReady", "False", "Building")
    await tenant.environment(commit="three")
    await tenant.reaches("one", "BuildReady", "False", "Building")
    tenant.systems.images.push(f"registry.example.com/org/app:{commit_of('three')}")
    await tenant.ready(seconds=300)
    await tenant.clock.sleep(60)
    metrics = tenant.sandbox.metrics()
    counts = {
        result: metrics[f'kapsa_builds_total{{engine="fake",result="{result}"}}']
        for result in ("started", "failed", "cancelled", "succeeded")
    }
    assert counts == {"started": 3, "failed": 1, "cancelled": 1, "succeeded": 1}


# -- one build for all that want it --------------------------------------------------------------------------


async def the_job(tenant: Tenant) -> dict[str, Any]:
    (job,) = (await tenant.client.list(JOB, namespace="kapsa-builds")).items
    return job


async def two_that_build(tenant: Tenant, *, finish: float = 600) -> None:
    """Create two environments at one new commit, with a slow build."""
    tenant.sandbox.harness.cluster.workloads.delay(finish=finish)
    await tenant.project(**DOCKERFILE)
    for name in ("one", "two"):
        await tenant.environment(name)
    for name in ("one", "two"):
        await tenant.reaches(name, "BuildReady", "False", "Building")


def counted(tenant: Tenant, result: str) -> float:
    return tenant.sandbox.metrics().get(f'kapsa_builds_total{{engine="fake",result="{result}"}}', 0)


async def test_two_environments_at_one_new_commit_share_its_build(tenant: Tenant) -> None:
    await two_that_build(tenant, finish=60)
    job = await the_job(tenant)
    tenant.systems.images.push(f"registry.example.com/org/app:{commit_of('one')}")
    images = {(await tenant.ready(name, seconds=300)).status.image for name in ("one", "two")}
    assert len(images) == 1
    await tenant.sandbox.gone(JOB, job["metadata"]["name"], namespace="kapsa-builds")
    assert (counted(tenant, "started"), counted(tenant, "succeeded")) == (1, 1)


async def test_a_shared_build_that_fails_is_reported_to_all_and_counted_once(tenant: Tenant) -> None:
    tenant.sandbox.harness.cluster.workloads.crash("kapsa-builds/*", exit_code=1)
    await tenant.project(**DOCKERFILE)
    for name in ("one", "two"):
        await tenant.environment(name)
    objects = set()
    for name in ("one", "two"):
        failed = await tenant.reaches(name, "BuildReady", "False", "BuildFailed")
        assert failed.status.failure is not None
        objects.add(failed.status.failure.object)
    assert objects == {f"Job {(await the_job(tenant))['metadata']['name']}"}
    assert counted(tenant, "failed") == 1


@pytest.mark.parametrize("first", ["one", "two"])
async def test_a_shared_build_runs_until_no_environment_needs_it(tenant: Tenant, first: str) -> None:
    second = "two" if first == "one" else "one"
    await two_that_build(tenant)
    shared = (await the_job(tenant))["metadata"]["uid"]
    await tenant.client.delete(Environment, first, namespace=tenant.home)
    await tenant.sandbox.gone(Environment, first, namespace=tenant.home)
    assert (await the_job(tenant))["metadata"]["uid"] == shared
    await tenant.environment(second, commit="newer")
    await tenant.clock.sleep(10)
    job = await the_job(tenant)
    assert job["metadata"]["uid"] != shared
    assert job["metadata"]["labels"]["catalyst.dev/commit"] == commit_of("newer")
    assert (counted(tenant, "started"), counted(tenant, "cancelled")) == (2, 1)


@pytest.mark.parametrize("mover", ["one", "two"])
async def test_a_push_to_one_of_two_leaves_the_build_of_the_other_alone(tenant: Tenant, mover: str) -> None:
    await two_that_build(tenant)
    shared = await the_job(tenant)
    await tenant.environment(mover, commit="newer")
    await tenant.clock.sleep(10)
    jobs = (await tenant.client.list(JOB, namespace="kapsa-builds")).items
    assert {job["metadata"]["labels"]["catalyst.dev/commit"] for job in jobs} == {
        commit_of("one"),
        commit_of("newer"),
    }
    assert shared["metadata"]["uid"] in {job["metadata"]["uid"] for job in jobs}
    assert counted(tenant, "cancelled") == 0


async def test_a_shared_build_outlives_a_restart_of_the_operator_and_wakes_all(tenant: Tenant) -> None:
    await two_that_build(tenant, finish=60)
    await tenant.restart()
    tenant.systems.images.push(f"registry.example.com/org/app:{commit_of('one')}")
    for name in ("one", "two"):
        await tenant.ready(name, seconds=300)
    assert (await tenant.client.list(JOB, namespace="kapsa-builds")).items == []


async def test_another_way_to_build_the_same_commit_ends_the_build_under_way(tenant: Tenant) -> None:
    await two_that_build(tenant)
    before = (await the_job(tenant))["metadata"]["uid"]
    await tenant.project(**{**DOCKERFILE, "build": {"strategy": "dockerfile", "args": {"A": "b"}}})
    await tenant.clock.sleep(30)
    assert (await the_job(tenant))["metadata"]["uid"] != before
    assert counted(tenant, "cancelled") == 1


async def test_a_cancelled_build_is_counted_under_the_engine_that_built_it(kpack: Tenant) -> None:
    kpack.sandbox.harness.cluster.workloads.delay(finish=600)
    await kpack.project(**BUILDPACK)
    await kpack.environment()
    await kpack.reaches("one", "BuildReady", "False", "Building")
    await kpack.project(**DOCKERFILE)
    await kpack.clock.sleep(30)
    metrics = kpack.sandbox.metrics()
    assert metrics['kapsa_builds_total{engine="kpack",result="cancelled"}'] == 1
    assert 'kapsa_builds_total{engine="buildkit",result="cancelled"}' not in metrics
