"""Crash sweeps: environments and projects end in the same state wherever the operator crashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from kapsa.environments.names import APPROVED_COMMIT, REDEPLOY_REQUESTED, namespace_name
from kapsa.environments.resources import KINDS, DomainPool, Environment, PreviewEnvironment, Project
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.team_access import ROLE_BINDING
from kapsa.runtime import Operator
from kapsa.runtime.testing import Harness, Scenario
from tests.behaviour.environments.crash_scenario import (
    HOME,
    NEXT,
    WORST,
    CrashScenario,
    Sweep,
    apply_commit,
    manifest,
)
from tests.environments.fakes import commit_of
from tests.environments.generating_renderer import GeneratingRenderer
from tests.environments.previews import make_operator as preview_operator
from tests.environments.previews import spec as preview_spec
from tests.environments.tenant import operator

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(900)]


async def delete_environment(harness: Harness) -> None:
    await harness.client.delete(Environment, "one", namespace=HOME)


def bind_team(user: str) -> Callable[[Harness], Any]:
    """Return a step in which the team gives a user the role edit, instead of the one before."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "developers", "namespace": "team"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    return lambda harness: harness.apply(binding)


async def unbind_team(harness: Harness) -> None:
    await harness.client.delete(ROLE_BINDING, "developers", namespace="team")


async def test_an_environment_created_updated_and_deleted_survives_a_crash_at_any_write(
    sweep: Sweep,
) -> None:
    crash_scenario = CrashScenario()
    scenario = crash_scenario.scenario(apply_commit("one"), apply_commit("two"), delete_environment)
    await sweep("environment", scenario, least_points=99)


@pytest.mark.long
async def test_the_access_of_a_team_is_granted_and_withdrawn_whichever_write_crashes(sweep: Sweep) -> None:
    scenario = CrashScenario(secrets=[], resources={}).scenario(
        bind_team("jane"), apply_commit("one"), bind_team("joe"), unbind_team
    )
    await sweep("team access", scenario, WORST)


def open_services(*ranges: str) -> Callable[[Harness], Any]:
    """Return a step in which an administrator opens these private ranges to all environments, and no others."""
    services = [{"name": "postgres", "cidrs": list(ranges), "ports": [{"port": 5432}]}] if ranges else []
    spec = {"baseDomains": ["example.com"], "sharedServices": services}
    pool = {"apiVersion": DomainPool.api_version, "kind": "DomainPool", "metadata": {"name": "pool"}}
    return lambda harness: harness.apply({**pool, "spec": spec})


@pytest.mark.long
async def test_shared_services_are_opened_moved_and_closed_whichever_write_crashes(sweep: Sweep) -> None:
    scenario = CrashScenario().scenario(
        open_services("10.20.0.0/28"), apply_commit("one"), open_services("10.30.0.0/28"), open_services()
    )
    await sweep("shared services", scenario, [*NEXT, *WORST])


BUILT: Mapping[str, Any] = {
    "build": {"strategy": "dockerfile"},
    "registry": {"imageRepository": "registry.example.com/org/app"},
    "deployment": {"type": "image"},
}


@pytest.mark.long
async def test_an_environment_whose_image_is_built_survives_a_crash_at_the_commit_of_any_write(
    sweep: Sweep,
) -> None:
    scenario = CrashScenario(**BUILT).scenario(apply_commit("one"), apply_commit("two"), delete_environment)
    await sweep("environment with builds", scenario, WORST, least_points=42)


class FailingBuildScenario(CrashScenario):
    """An environment whose first build fails, until a person asks for another one."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        harness.cluster.workloads.crash("kapsa-builds/*", exit_code=1)


async def retry_build(harness: Harness) -> None:
    one: Environment = await harness.client.get(Environment, "one", namespace=HOME)
    assert one.status.failure is not None
    assert one.status.failure.reason == "BuildFailed"
    harness.cluster.workloads.heal()
    request = {"metadata": {"annotations": {REDEPLOY_REQUESTED: "now"}}}
    await harness.client.patch(Environment, "one", request, namespace=HOME)
    await harness.clock.sleep(600)


@pytest.mark.long
async def test_a_failed_build_that_a_person_retries_survives_a_crash_at_any_write(sweep: Sweep) -> None:
    await sweep(
        "retried build", FailingBuildScenario(**BUILT).scenario(apply_commit("one"), retry_build, is_ready)
    )


async def is_ready(harness: Harness) -> None:
    one: Environment = await harness.client.get(Environment, "one", namespace=HOME)
    assert one.status.phase == "Ready", one.status.failure
    assert one.status.redeploy_request == "now"


def previews(*branches: str, **spec: Any) -> Scenario:
    """Return a scenario: branches are pushed, the first is deleted, and another gets a new commit."""
    crash_scenario = CrashScenario(previewEnvironments={"enabled": True}, secrets=[], resources={}, **spec)

    async def push(harness: Harness) -> None:
        for branch in branches:
            crash_scenario.systems.git.push(branch)
        await harness.clock.sleep(400)

    async def merge(harness: Harness) -> None:
        crash_scenario.systems.git.push(branches[-1], "again")
        del crash_scenario.systems.git.branches[branches[0]]
        await harness.clock.sleep(800)

    return crash_scenario.scenario(push, merge)


async def test_a_project_with_three_previews_survives_a_crash_at_the_commit_of_any_write(
    sweep: Sweep,
) -> None:
    await sweep("project", previews("b", "a", "c"), WORST, least_points=72)


@pytest.mark.long
async def test_a_project_whose_preview_is_built_and_goes_survives_a_crash_before_any_write(
    sweep: Sweep,
) -> None:
    await sweep("project with a build", previews("a", **BUILT), NEXT, least_points=35)


# -- approvals, generated values and hosts of previews ---------------------------------------------------------

FORK = {"commitSha": commit_of("fork"), "prNumber": 7}


async def apply_fork(harness: Harness) -> None:
    spec = {"projectRef": {"name": "app"}, "source": FORK}
    await harness.apply(manifest(Environment, "one", HOME, spec))


def approve(commit: str | None) -> Callable[[Harness], Any]:
    """Return a step that sets or removes the approval of a commit."""
    patch = {"metadata": {"annotations": {APPROVED_COMMIT: commit}}}
    return lambda harness: harness.client.patch(Environment, "one", patch, namespace=HOME)


@pytest.mark.long
async def test_a_fork_whose_approval_is_withdrawn_survives_a_crash_at_the_commit_of_any_write(
    sweep: Sweep,
) -> None:
    scenario = CrashScenario(**BUILT).scenario(apply_fork, approve(commit_of("fork")), approve(None))
    await sweep("withdrawn approval", scenario, WORST)


def set_quota(cpu: str) -> Callable[[Harness], Any]:
    """Return a step in which the team sets a quota, perhaps above the ceiling."""
    patch = {"spec": {"resources": {"defaultQuota": {"cpu": cpu}}}}
    return lambda harness: harness.client.patch(Project, "app", patch, namespace="team")


def suspend(asleep: bool) -> Callable[[Harness], Any]:
    """Return a step that puts the environment to sleep, or wakes it."""
    patch = {"spec": {"suspended": asleep}}
    return lambda harness: harness.client.patch(Environment, "one", patch, namespace=HOME)


async def is_asleep(harness: Harness) -> None:
    web = await harness.client.get(
        "apps/v1/Deployment", "web", namespace=namespace_name("team", "app", "one")
    )
    assert web["spec"]["replicas"] == 0


async def poll(harness: Harness) -> None:
    """Wait for the next poll, which reports on the repository for the last change of the Project."""
    await harness.clock.sleep(600)


@pytest.mark.long
async def test_an_environment_that_falls_asleep_while_it_fails_survives_a_crash_at_any_write(
    sweep: Sweep,
) -> None:
    asleep = (apply_commit("one"), set_quota("100000"), suspend(True), is_asleep)
    scenario = CrashScenario(secrets=[]).scenario(*asleep, set_quota("4"), suspend(False), poll)
    await sweep("asleep while failing", scenario, [*NEXT, *WORST])


class GeneratingScenario(CrashScenario):
    """A deployed environment with a generated password: from then on each process would generate another one."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        self.renderer = self.systems.renderer = GeneratingRenderer(with_checksum=False)
        await harness.start(operator(self.systems), name="the first process")
        await harness.settle(horizon=90)
        await apply_commit("one")(harness)
        await harness.settle(horizon=90)
        await harness.kill("the first process")
        await harness.client.get("v1/Secret", "database", namespace=namespace_name("team", "app", "one"))

    def scenario(self, *steps: Callable[[Harness], Any]) -> Scenario:
        return msgspec.structs.replace(super().scenario(*steps), operator=self._next_process)

    def _next_process(self) -> Operator:
        self.renderer.process += 1
        return operator(self.systems)


@pytest.mark.long
async def test_a_generated_password_survives_a_crash_before_or_at_the_commit_of_any_write(
    sweep: Sweep,
) -> None:
    scenario = GeneratingScenario().scenario(apply_commit("two"), apply_commit("three"))
    await sweep("kept generated values", scenario, [*NEXT, *WORST])


PREVIEW = manifest(PreviewEnvironment, "pr-42-env", "team", preview_spec(42))


async def prepare_preview(harness: Harness) -> None:
    await harness.install(*KINDS)
    await harness.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await harness.apply(PREVIEW)


async def make_pool(harness: Harness) -> None:
    """Create the pool that has the domain of previews."""
    spec = {"baseDomains": [Settings().preview_environment_domain]}
    pool = {"apiVersion": DomainPool.api_version, "kind": "DomainPool", "metadata": {"name": "pool"}}
    await harness.apply({**pool, "spec": spec})


async def delete_preview(harness: Harness) -> None:
    (held,) = (await harness.client.get(DomainPool, "pool")).status.allocations
    assert held.host.startswith("pr-42.")
    await harness.client.delete(PreviewEnvironment, "pr-42-env", namespace="team")


@pytest.mark.long
async def test_a_preview_that_gets_its_host_from_a_pool_and_goes_survives_a_crash_at_any_write(
    sweep: Sweep,
) -> None:
    scenario = Scenario(
        operator=preview_operator,
        prepare=prepare_preview,
        steps=(make_pool, delete_preview),
        ignore=["pods", "endpointslices", "endpoints"],
    )
    await sweep("preview host", scenario)
