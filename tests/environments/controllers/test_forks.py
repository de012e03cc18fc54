"""Pull requests of forks: nothing of them runs, and they get no secrets, until their commit is approved."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import Refused, Unreachable
from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.resources import Environment
from tests.environments.fakes import commit_of, deployment, service
from tests.environments.tenant import ALL_REPOSITORIES, BUILD, Tenant, secret, shared_registry

FORK = {"commitSha": commit_of("fork"), "prNumber": 7}


async def secrets_of(tenant: Tenant) -> set[str]:
    secrets = (await tenant.client.list("v1/Secret", namespace=tenant.namespace_of("one"))).items
    return {each["metadata"]["name"] for each in secrets}


async def approve(tenant: Tenant, name: str = "one") -> None:
    patch = {"metadata": {"annotations": {APPROVED_COMMIT: commit_of("fork")}}}
    await tenant.client.patch(Environment, name, patch, namespace=tenant.home)


async def withdraw(tenant: Tenant) -> None:
    patch = {"metadata": {"annotations": {APPROVED_COMMIT: None}}}
    await tenant.client.patch(Environment, "one", patch, namespace=tenant.home)


async def running_builds(tenant: Tenant) -> list[str]:
    jobs = (await tenant.client.list("batch/v1/Job", namespace="kapsa-builds")).items
    return [each["metadata"]["name"] for each in jobs if not each["metadata"].get("deletionTimestamp")]


async def test_a_fork_gets_neither_the_pull_secret_nor_the_environments_own_secrets(tenant: Tenant) -> None:
    await shared_registry(tenant, repositories=ALL_REPOSITORIES)
    tenant.systems.images.push(f"{tenant.registry_host}/org/app:{commit_of('fork')}")
    await tenant.project(
        registry={"name": tenant.registry, "imageRepository": "org/app"}, secrets=[{"name": "settings"}]
    )
    await secret(tenant, "settings", tenant.name, KEY="value")
    await secret(tenant, "own", tenant.home, KEY="value")
    await tenant.environment(source=FORK, config={"secretRefs": [{"name": "own"}]})
    withheld = await tenant.reaches("one", "BuildReady", "False", "ApprovalRequired")
    assert await secrets_of(tenant) == set()
    account = await tenant.client.get("v1/ServiceAccount", "default", namespace=tenant.namespace_of("one"))
    assert not account.get("imagePullSecrets")
    condition = withheld.status.condition("NamespaceReady")
    assert condition is not None
    assert condition.reason == "SecretsWithheld"

    await approve(tenant)
    await tenant.reaches("one", "NamespaceReady", "True", "NamespaceReady")
    await tenant.ready()
    asked = tenant.systems.renderer.requests[-1]
    assert (asked.env_from, asked.pull_secret) == ([{"secretRef": {"name": "own"}}], "kapsa-registry")
    assert await secrets_of(tenant) == {"settings", "own", "kapsa-registry"}


@pytest.mark.parametrize(
    ("trust", "on_a_branch", "trusted"),
    [
        ("none", True, False),
        ("repository", False, False),
        ("repository", True, True),
        ("all", False, True),
    ],
)
async def test_a_project_says_which_pull_requests_it_trusts(
    tenant: Tenant, trust: str, on_a_branch: bool, trusted: bool
) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    previews: dict[str, Any] = {"enabled": False, "trust": trust}
    await tenant.project(secrets=[{"name": "settings"}], previewEnvironments=previews)
    if on_a_branch:
        tenant.systems.git.push("theirs", "fork")
    await tenant.environment(source=FORK)
    if trusted:
        await tenant.ready()
    else:
        await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    assert await secrets_of(tenant) == ({"settings"} if trusted else set())
    assert bool(tenant.systems.renderer.requests) == trusted


async def next_push(tenant: Tenant) -> None:
    """Move the branch on, and let a new process see where it is now."""
    tenant.systems.git.push("theirs", "next")
    await tenant.restart()


async def test_a_trusted_commit_keeps_serving_when_its_branch_moves_on(tenant: Tenant) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    tenant.systems.git.push("theirs", "fork")
    await tenant.environment(source=FORK)
    await tenant.ready()
    await next_push(tenant)
    await tenant.environment(source=FORK, config={"envVars": [{"name": "A", "value": "1"}]})
    await tenant.ready()
    assert await deployments_of(tenant) == [f"app:{commit_of('fork')[:12]}"]
    assert await secrets_of(tenant) == {"settings"}


async def forget_trust(tenant: Tenant) -> None:
    """Leave the status as versions of the operator wrote it that did not record which commits they trust."""
    await tenant.sandbox.harness.stop()
    content = {"status": {"trustedCommits": None}}
    await tenant.client.patch(Environment, "one", content, namespace=tenant.home, subresource="status")


async def serves(tenant: Tenant) -> bool:
    return await deployments_of(tenant) == [f"app:{commit_of('fork')[:12]}"]


@pytest.mark.parametrize("responds", [True, False])
async def test_an_upgrade_does_not_stop_a_commit_of_a_branch_that_has_moved_on(
    tenant: Tenant, responds: bool
) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    tenant.systems.git.push("theirs", "fork")
    await tenant.environment(source=FORK)
    await tenant.ready()
    await forget_trust(tenant)
    tenant.systems.git.push("theirs", "next")
    tenant.systems.git.history.add(commit_of("fork"))
    if not responds:
        tenant.systems.git.error = Unreachable("git.example.com does not answer")
    await tenant.start()
    await tenant.environment(source=FORK, config={"envVars": [{"name": "A", "value": "1"}]})
    await tenant.reaches("one", "Ready", str(responds))
    assert await serves(tenant)
    assert await secrets_of(tenant) == {"settings"}
    tenant.systems.git.error = None
    assert (await tenant.ready()).status.trusted_commits == [commit_of("fork")]


async def test_an_upgrade_stops_a_commit_that_is_in_no_branch_and_not_approved(tenant: Tenant) -> None:
    await tenant.project()
    tenant.systems.git.push("theirs", "fork")
    await tenant.environment(source=FORK)
    await tenant.ready()
    await forget_trust(tenant)
    tenant.systems.git.push("theirs", "next")
    await tenant.start()
    await tenant.reaches("one", "DeploymentReady", "False", "ApprovalRequired")
    assert await deployments_of(tenant) == []


async def test_after_an_upgrade_the_end_of_an_approval_stops_a_commit_although_git_does_not_respond(
    tenant: Tenant,
) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.ready()
    await forget_trust(tenant)
    tenant.systems.git.error = Unreachable("git.example.com does not answer")
    await tenant.start()

    async def is_decided() -> bool:
        return (await tenant.get()).status.trusted_commits == []

    await tenant.sandbox.until(is_decided, "the status records that no branch is at the commit", seconds=120)
    assert await serves(tenant)
    await withdraw(tenant)
    await tenant.sandbox.until(lambda: is_stopped(tenant), "nothing of the commit runs", seconds=120)
    assert await secrets_of(tenant) == set()


async def is_stopped(tenant: Tenant) -> bool:
    return await deployments_of(tenant) == []


async def test_a_commit_that_a_branch_had_is_stopped_when_the_project_trusts_no_pull_request(
    tenant: Tenant,
) -> None:
    await tenant.project()
    tenant.systems.git.push("theirs", "fork")
    await tenant.environment(source=FORK)
    await tenant.ready()
    await tenant.project(previewEnvironments={"enabled": False, "trust": "none"})
    await tenant.reaches("one", "DeploymentReady", "False", "ApprovalRequired")
    assert await deployments_of(tenant) == []


@pytest.mark.virtual_time
async def test_the_deployed_commit_stays_trusted_while_later_ones_fail_to_render(tenant: Tenant) -> None:
    await tenant.project()
    tenant.systems.git.push("theirs", "fork")
    await tenant.environment(source=FORK)
    await tenant.ready()
    tenant.systems.renderer.error = Refused("no such path")
    for text in ("second", "third"):
        pushed = tenant.systems.git.push("theirs", text)
        await tenant.environment(source={"commitSha": pushed, "prNumber": 7})
        failed = await tenant.reaches("one", "DeploymentReady", "False", "Refused")
        assert failed.status.trusted_commits == [commit_of("fork"), pushed]
    tenant.systems.renderer.error = None
    await tenant.environment(source={"commitSha": pushed, "prNumber": 7}, suspended=True)
    asleep = await tenant.reaches("one", "Ready", "False", "Suspended")
    assert asleep.status.commit_sha == commit_of("fork")


async def test_an_approval_of_another_commit_is_none(tenant: Tenant) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment(source={"commitSha": commit_of("push"), "prNumber": 7})
    await approve(tenant)
    await tenant.clock.sleep(30)
    await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    assert await secrets_of(tenant) == set()


async def deployments_of(tenant: Tenant) -> list[str]:
    deployments = await tenant.client.list("apps/v1/Deployment", namespace=tenant.namespace_of("one"))
    return [
        each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in deployments.items
        if not each["metadata"].get("deletionTimestamp")
    ]


async def test_nothing_of_an_unapproved_fork_runs_where_the_project_builds_nothing(tenant: Tenant) -> None:
    tenant.systems.renderer.objects = [deployment("miner", "docker.io/evil/miner:1")]
    await tenant.project()
    await tenant.environment(source=FORK, ingress={"enabled": False})
    waiting = await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    await tenant.clock.sleep(30)
    assert await deployments_of(tenant) == []
    assert tenant.systems.renderer.requests == [], "approval comes before rendering"
    assert waiting.status.phase == "Pending"
    condition = waiting.status.condition("Ready")
    assert condition is not None
    assert f"{APPROVED_COMMIT} of the Environment" in condition.message
    await approve(tenant)
    await tenant.ready()
    assert await deployments_of(tenant) == ["docker.io/evil/miner:1"]


def test_the_reason_column_says_that_a_fork_waits_for_approval() -> None:
    columns = {each.name: each.json_path for each in Environment.definition.columns}
    assert columns["Reason"] == '.status.conditions[?(@.type=="Ready")].reason'


async def test_an_approved_version_keeps_serving_while_the_next_push_waits_for_approval(
    tenant: Tenant,
) -> None:
    await tenant.project()
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.ready()
    await tenant.environment(source={"commitSha": commit_of("push"), "prNumber": 7})
    waiting = await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    await tenant.clock.sleep(30)
    assert await deployments_of(tenant) == [f"app:{commit_of('fork')[:12]}"]
    assert waiting.status.commit_sha == commit_of("fork")


async def test_a_withdrawn_approval_stops_what_runs_and_keeps_its_volumes(tenant: Tenant) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    tenant.systems.renderer.objects = [deployment("web", "app:1"), service("web"), claim]
    await tenant.project()
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.reaches("one", "BuildReady", "True")
    await tenant.sandbox.exists("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one"))
    await withdraw(tenant)
    stopped = await tenant.reaches("one", "DeploymentReady", "False", "ApprovalRequired")
    assert await pods_of(tenant) == []
    assert await tenant.sandbox.get("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one")) is None
    assert stopped.status.url is None
    namespace = tenant.namespace_of("one")
    assert await tenant.sandbox.get("v1/PersistentVolumeClaim", "data", namespace=namespace) is not None
    await approve(tenant)
    await tenant.sandbox.exists("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one"))


async def pods_of(tenant: Tenant) -> list[str]:
    pods = await tenant.client.list("v1/Pod", namespace=tenant.namespace_of("one"))
    return [each["metadata"]["name"] for each in pods.items]


async def set_finalizers(tenant: Tenant, pod: str, *finalizers: str) -> None:
    """Keep a pod that is being deleted, as one does that ignores SIGTERM, or let it go."""
    content = {"metadata": {"finalizers": list(finalizers)}}
    await tenant.client.patch("v1/Pod", pod, content, namespace=tenant.namespace_of("one"))


async def test_an_approval_is_withdrawn_only_once_no_pod_is_left(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.ready()
    (pod,) = await pods_of(tenant)
    await set_finalizers(tenant, pod, "example.com/stays")
    await withdraw(tenant)
    await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    await tenant.clock.sleep(12)
    stopping = await tenant.reaches("one", "DeploymentReady", "False", "Stopping")
    condition = stopping.status.condition("DeploymentReady")
    assert condition is not None
    assert condition.message == "Deployment web and its pods are being deleted"
    assert await pods_of(tenant) == [pod]
    await set_finalizers(tenant, pod)
    await tenant.reaches("one", "DeploymentReady", "False", "ApprovalRequired")
    assert await pods_of(tenant) == []


@pytest.mark.virtual_time
async def test_a_withdrawn_approval_cancels_the_build_of_the_commit(tenant: Tenant) -> None:
    tenant.sandbox.harness.cluster.workloads.delay(finish=600)
    await tenant.project(**BUILD)
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.reaches("one", "BuildReady", "False", "Building")
    await withdraw(tenant)
    await tenant.reaches("one", "BuildReady", "False", "ApprovalRequired")
    assert await running_builds(tenant) == []


@pytest.mark.virtual_time
async def test_the_build_of_two_unapproved_pull_requests_from_one_commit_is_cancelled_once(
    tenant: Tenant,
) -> None:
    tenant.sandbox.harness.cluster.workloads.delay(finish=600)
    await tenant.project(**BUILD)
    await tenant.environment(source=FORK)
    await tenant.environment("two", source={**FORK, "prNumber": 8})
    await tenant.reaches("two", "BuildReady", "False", "ApprovalRequired")
    await approve(tenant)
    await tenant.reaches("one", "BuildReady", "False", "Building")
    await withdraw(tenant)
    await tenant.reaches("one", "BuildReady", "False", "ApprovalRequired")
    await tenant.sandbox.at_rest()
    before = len(tenant.sandbox.writes())
    await tenant.clock.sleep(300)
    assert [str(call) for call in tenant.sandbox.writes()[before:]] == []
    assert await running_builds(tenant) == []


@pytest.mark.virtual_time
async def test_a_build_that_an_approved_pull_request_needs_starts_again_after_it_was_cancelled(
    tenant: Tenant,
) -> None:
    tenant.sandbox.harness.cluster.workloads.delay(finish=600)
    await tenant.project(**BUILD)
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.reaches("one", "BuildReady", "False", "Building")
    await tenant.environment("two", source={**FORK, "prNumber": 8})
    await approve(tenant, "two")
    await tenant.reaches("two", "BuildReady", "False", "Building")
    await withdraw(tenant)
    await tenant.reaches("one", "BuildReady", "False", "ApprovalRequired")
    await tenant.clock.sleep(60)
    await tenant.reaches("two", "BuildReady", "False", "Building")
    assert len(await running_builds(tenant)) == 1


async def test_an_approval_is_withdrawn_from_what_runs_while_the_next_push_waits(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.ready()
    await tenant.environment(source={"commitSha": commit_of("push"), "prNumber": 7})
    await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    assert await deployments_of(tenant) == [f"app:{commit_of('fork')[:12]}"]
    await withdraw(tenant)
    await tenant.reaches("one", "DeploymentReady", "False", "ApprovalRequired")
    assert await deployments_of(tenant) == []


async def push_what_does_not_render(tenant: Tenant) -> str:
    """Ask for another commit of the pull request, while the approved one serves. Returns that commit."""
    await tenant.project()
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.ready()
    tenant.systems.renderer.error = Refused("no such path")
    return commit_of("push")


async def test_an_approval_is_withdrawn_while_a_trusted_commit_fails_to_render(tenant: Tenant) -> None:
    pushed = await push_what_does_not_render(tenant)
    assert tenant.systems.git.push("pages", "push") == pushed
    await tenant.environment(source={"commitSha": pushed, "prNumber": 7})
    await tenant.reaches("one", "DeploymentReady", "False", "Refused")
    assert await serves(tenant)
    await withdraw(tenant)
    await tenant.sandbox.until(lambda: is_stopped(tenant), "nothing of the former commit runs", seconds=120)
    tenant.systems.renderer.error = None
    await tenant.environment(source={"commitSha": pushed, "prNumber": 7}, ttl="24h")
    assert (await tenant.ready()).status.commit_sha == pushed


async def test_an_approved_version_keeps_serving_while_its_approved_successor_fails_to_render(
    tenant: Tenant,
) -> None:
    pushed = await push_what_does_not_render(tenant)
    await tenant.environment(source={"commitSha": pushed, "prNumber": 7})
    await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    approved = {"metadata": {"annotations": {APPROVED_COMMIT: pushed}}}
    await tenant.client.patch(Environment, "one", approved, namespace=tenant.home)
    await tenant.reaches("one", "DeploymentReady", "False", "Refused")
    await tenant.clock.sleep(7)
    assert await serves(tenant)


async def test_an_approval_is_withdrawn_from_objects_of_a_rejected_deployment(tenant: Tenant) -> None:
    rejected = deployment("web-2", "app:2")
    rejected["spec"]["replicas"] = -1
    tenant.systems.renderer.objects = [deployment("web-1", "app:1"), rejected]
    await tenant.project()
    await tenant.environment(source=FORK)
    await approve(tenant)
    await tenant.reaches("one", "DeploymentReady", "False", "Rejected")
    assert await deployments_of(tenant) == ["app:1"]
    await withdraw(tenant)
    await tenant.reaches("one", "DeploymentReady", "False", "ApprovalRequired")
    assert await deployments_of(tenant) == []
