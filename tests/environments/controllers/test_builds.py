"""Builds as an Environment meets them: kpack's Image and its status, what is tried again, and how little is asked meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from kapsa.environments.build import BuildEngines
from kapsa.environments.resources import Environment
from kapsa.environments.settings import Settings
from tests.environments.outside_world import commit_of
from tests.environments.stage import Stage
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time

KPACK_IMAGE = "kpack.io/v1alpha2/Image"
JOB = "batch/v1/Job"
REPOSITORY = {"imageRepository": "registry.example.com/org/app"}
DOCKERFILE = {"build": {"strategy": "dockerfile"}, "registry": REPOSITORY, "deployment": {"type": "image"}}
BUILDPACK = {"build": {"strategy": "buildpack"}, "registry": REPOSITORY, "deployment": {"type": "image"}}


@pytest_asyncio.fixture
async def kpack(stage: Stage) -> Team:
    """A team on a cluster that has kpack."""
    made = Team(stage)
    made.outside.builds = BuildEngines(Settings())
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha2",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}
        },
        "subresources": {"status": {}},
    }
    await stage.client.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "images.kpack.io"},
            "spec": {
                "group": "kpack.io",
                "scope": "Namespaced",
                "names": {"kind": "Image", "plural": "images", "singular": "image"},
                "versions": [version],
            },
        }
    )
    await made.start()
    return made


async def the_image(team: Team) -> dict[str, Any]:
    (found,) = (await team.client.list(KPACK_IMAGE, namespace="kapsa-builds")).items
    return found


async def say(team: Team, status: str, message: str = "") -> None:
    """What kpack writes into the Image's status."""
    image = await the_image(team)
    metadata = image["metadata"]
    ready = {"type": "Ready", "status": status, "message": message}
    change = {"status": {"observedGeneration": metadata["generation"], "conditions": [ready]}}
    await team.client.patch(
        KPACK_IMAGE, metadata["name"], change, namespace="kapsa-builds", subresource="status"
    )


async def test_what_kpack_builds_is_deployed_once_its_image_is_ready(kpack: Team) -> None:
    await kpack.project(**BUILDPACK)
    await kpack.environment()
    building = await kpack.reaches("one", "BuildReady", "False", "Building")
    assert building.status.phase == "Building"
    image = await the_image(kpack)
    assert image["spec"]["source"]["git"]["revision"] == commit_of("one")
    digest = kpack.outside.images.push(image["spec"]["tag"])
    await say(kpack, "True")
    ready = await kpack.ready()
    assert ready.status.image == f"registry.example.com/org/app@{digest}"
    await kpack.stage.gone(KPACK_IMAGE, image["metadata"]["name"], namespace="kapsa-builds")


async def test_what_kpack_cannot_build_fails_the_environment_in_kpacks_words(kpack: Team) -> None:
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


async def test_an_image_of_kpack_for_an_older_commit_goes(kpack: Team) -> None:
    await kpack.project(**BUILDPACK)
    await kpack.environment()
    await kpack.reaches("one", "BuildReady", "False", "Building")
    await kpack.environment(commit="two")
    await kpack.clock.sleep(10)
    assert (await the_image(kpack))["spec"]["source"]["git"]["revision"] == commit_of("two")


async def test_without_kpack_a_buildpack_project_says_what_is_missing(team: Team) -> None:
    team.outside.builds = BuildEngines(Settings())
    await team.restart()
    await team.project(**BUILDPACK)
    await team.environment()
    failed = await team.reaches("one", "BuildReady", "False", "BuilderMissing")
    assert failed.status.failure is not None
    assert "serves no Image in kpack.io/v1alpha2" in failed.status.failure.message
    assert "install kpack" in failed.status.failure.hint


async def test_a_failed_build_is_tried_again_once_its_job_is_deleted(team: Team) -> None:
    workloads = team.stage.harness.cluster.workloads
    workloads.crash("kapsa-builds/*", exit_code=1)
    await team.project(**DOCKERFILE)
    await team.environment()
    failed = await team.reaches("one", "BuildReady", "False", "BuildFailed")
    assert failed.status.failure is not None
    assert "delete the Job" in failed.status.failure.hint
    workloads.heal()
    name = failed.status.failure.object.removeprefix("Job ")
    team.outside.images.push(f"registry.example.com/org/app:{commit_of('one')}")
    await team.client.delete(JOB, name, namespace="kapsa-builds")
    await team.ready()


async def test_the_registry_is_not_asked_while_a_build_runs(team: Team) -> None:
    team.stage.harness.cluster.workloads.delay(finish=600)
    await team.project(**DOCKERFILE)
    await team.environment()
    await team.reaches("one", "BuildReady", "False", "Building")
    asked = len(team.outside.images.asked)
    note = {"metadata": {"annotations": {"note": "look again"}}}
    await team.client.patch(Environment, "one", note, namespace=team.home)
    await team.clock.sleep(300)
    assert len(team.outside.images.asked) == asked


async def test_builds_run_outside_of_the_environments_namespace_and_quota(team: Team) -> None:
    team.stage.harness.cluster.workloads.delay(finish=600)
    await team.project(**DOCKERFILE, resources={"defaultQuota": {"pods": 1}})
    await team.environment()
    await team.reaches("one", "BuildReady", "False", "Building")
    assert (await team.client.list("v1/Pod", namespace=team.place("one"))).items == []
    assert len((await team.client.list("v1/Pod", namespace="kapsa-builds")).items) == 1


async def test_a_build_ends_with_its_environment(team: Team) -> None:
    team.stage.harness.cluster.workloads.delay(finish=600)
    await team.project(**DOCKERFILE)
    await team.environment()
    await team.reaches("one", "BuildReady", "False", "Building")
    await team.client.delete(Environment, "one", namespace=team.home)
    await team.stage.gone(Environment, "one", namespace=team.home)
    assert (await team.client.list(JOB, namespace="kapsa-builds")).items == []


async def test_builds_are_counted_by_what_became_of_them(team: Team) -> None:
    workloads = team.stage.harness.cluster.workloads
    await team.project(**DOCKERFILE)
    workloads.crash("kapsa-builds/*", exit_code=1)
    await team.environment()
    await team.reaches("one", "BuildReady", "False", "BuildFailed")
    await team.clock.sleep(3600)
    workloads.heal()
    workloads.delay(finish=60)
    await team.environment(commit="two")
    await team.reaches("one", "BuildReady", "False", "Building")
    await team.environment(commit="three")
    await team.reaches("one", "BuildReady", "False", "Building")
    team.outside.images.push(f"registry.example.com/org/app:{commit_of('three')}")
    await team.ready(seconds=300)
    await team.clock.sleep(60)
    told = team.stage.metrics()
    counts = {
        result: told[f'kapsa_builds_total{{engine="fake",result="{result}"}}']
        for result in ("started", "failed", "cancelled", "succeeded")
    }
    assert counts == {"started": 3, "failed": 1, "cancelled": 1, "succeeded": 1}


# -- one build for all that want it --------------------------------------------------------------------------------


async def the_job(team: Team) -> dict[str, Any]:
    (found,) = (await team.client.list(JOB, namespace="kapsa-builds")).items
    return found


async def two_that_build(team: Team, *, finish: float = 600) -> None:
    """Two environments at one new commit, whose build takes its time."""
    team.stage.harness.cluster.workloads.delay(finish=finish)
    await team.project(**DOCKERFILE)
    for name in ("one", "two"):
        await team.environment(name)
    for name in ("one", "two"):
        await team.reaches(name, "BuildReady", "False", "Building")


def counted(team: Team, result: str) -> float:
    return team.stage.metrics().get(f'kapsa_builds_total{{engine="fake",result="{result}"}}', 0)


async def test_two_environments_at_one_new_commit_share_its_build(team: Team) -> None:
    await two_that_build(team, finish=60)
    job = await the_job(team)
    team.outside.images.push(f"registry.example.com/org/app:{commit_of('one')}")
    images = {(await team.ready(name, seconds=300)).status.image for name in ("one", "two")}
    assert len(images) == 1
    await team.stage.gone(JOB, job["metadata"]["name"], namespace="kapsa-builds")
    assert (counted(team, "started"), counted(team, "succeeded")) == (1, 1)


async def test_a_shared_build_that_fails_tells_all_and_is_counted_once(team: Team) -> None:
    team.stage.harness.cluster.workloads.crash("kapsa-builds/*", exit_code=1)
    await team.project(**DOCKERFILE)
    for name in ("one", "two"):
        await team.environment(name)
    objects = set()
    for name in ("one", "two"):
        failed = await team.reaches(name, "BuildReady", "False", "BuildFailed")
        assert failed.status.failure is not None
        objects.add(failed.status.failure.object)
    assert objects == {f"Job {(await the_job(team))['metadata']['name']}"}
    assert counted(team, "failed") == 1


@pytest.mark.parametrize("first", ["one", "two"])
async def test_a_shared_build_goes_on_until_nobody_wants_it(team: Team, first: str) -> None:
    second = "two" if first == "one" else "one"
    await two_that_build(team)
    shared = (await the_job(team))["metadata"]["uid"]
    await team.client.delete(Environment, first, namespace=team.home)
    await team.stage.gone(Environment, first, namespace=team.home)
    assert (await the_job(team))["metadata"]["uid"] == shared
    await team.environment(second, commit="newer")
    await team.clock.sleep(10)
    job = await the_job(team)
    assert job["metadata"]["uid"] != shared
    assert job["metadata"]["labels"]["catalyst.dev/commit"] == commit_of("newer")
    assert (counted(team, "started"), counted(team, "cancelled")) == (2, 1)


@pytest.mark.parametrize("mover", ["one", "two"])
async def test_a_push_to_one_of_two_leaves_the_build_of_the_other_alone(team: Team, mover: str) -> None:
    await two_that_build(team)
    shared = await the_job(team)
    await team.environment(mover, commit="newer")
    await team.clock.sleep(10)
    jobs = (await team.client.list(JOB, namespace="kapsa-builds")).items
    assert {job["metadata"]["labels"]["catalyst.dev/commit"] for job in jobs} == {
        commit_of("one"),
        commit_of("newer"),
    }
    assert shared["metadata"]["uid"] in {job["metadata"]["uid"] for job in jobs}
    assert counted(team, "cancelled") == 0


async def test_a_shared_build_outlives_a_restart_of_the_operator_and_wakes_all(team: Team) -> None:
    await two_that_build(team, finish=60)
    await team.restart()
    team.outside.images.push(f"registry.example.com/org/app:{commit_of('one')}")
    for name in ("one", "two"):
        await team.ready(name, seconds=300)
    assert (await team.client.list(JOB, namespace="kapsa-builds")).items == []


async def test_another_way_to_build_the_same_commit_ends_the_build_under_way(team: Team) -> None:
    await two_that_build(team)
    before = (await the_job(team))["metadata"]["uid"]
    await team.project(**{**DOCKERFILE, "build": {"strategy": "dockerfile", "args": {"A": "b"}}})
    await team.clock.sleep(30)
    assert (await the_job(team))["metadata"]["uid"] != before
    assert counted(team, "cancelled") == 1


async def test_a_cancelled_build_is_counted_under_the_engine_that_built_it(kpack: Team) -> None:
    kpack.stage.harness.cluster.workloads.delay(finish=600)
    await kpack.project(**BUILDPACK)
    await kpack.environment()
    await kpack.reaches("one", "BuildReady", "False", "Building")
    await kpack.project(**DOCKERFILE)
    await kpack.clock.sleep(30)
    told = kpack.stage.metrics()
    assert told['kapsa_builds_total{engine="kpack",result="cancelled"}'] == 1
    assert 'kapsa_builds_total{engine="buildkit",result="cancelled"}' not in told
