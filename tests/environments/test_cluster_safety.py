"""Safety of a shared cluster: strangers' namespaces, wrong clocks, floods and failures that heal. On both engines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

import pytest

from kapsa.environments.names import OWNER_UID
from kapsa.environments.resources import Environment, PreviewEnvironment, Project
from kapsa.environments.settings import Settings
from kapsa.environments.sources.previews import ALLOW_MASS_DELETION
from kapsa.runtime import Forbidden
from tests.environments.fake_controllers import closed_nodes
from tests.environments.fakes import deployment, service
from tests.environments.previews import Preview, make_operator
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

MONTH = timedelta(days=30)


class SettableClock(Protocol):
    """A clock whose wall time can be wrong."""

    ahead: timedelta


def settable(sandbox: Sandbox) -> SettableClock:
    """Give the operators that start from now on a clock that can be set."""

    class Set(type(sandbox.clock)):  # type: ignore[misc] - the clock of either engine
        ahead = timedelta()

        def now(self) -> datetime:
            return super().now() + self.ahead  # type: ignore[no-any-return]

    clock = Set()
    sandbox.harness.clock = clock
    return cast("SettableClock", clock)


async def names(tenant: Tenant) -> set[str]:
    """Return the environments that are not being deleted."""
    listed = await tenant.client.list(Environment, namespace=tenant.home)
    return {each.name for each in listed.items if not each.metadata.deleting}


async def test_a_deleted_environment_leaves_a_namespace_alone_that_only_has_its_label(tenant: Tenant) -> None:
    await tenant.project()
    made = await tenant.environment()
    await tenant.ready()
    stranger = f"payroll-prod-{tenant.sandbox.unique}"
    await tenant.sandbox.make_namespace(stranger, **{OWNER_UID: made.metadata.uid})
    await tenant.client.delete(Environment, "one", namespace=tenant.home)
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
    assert await tenant.sandbox.get("v1/Namespace", tenant.namespace_of("one"), namespace="") is None
    left = await tenant.sandbox.get("v1/Namespace", stranger, namespace="")
    assert "deletionTimestamp" not in left["metadata"]
    await tenant.sandbox.event("NamespaceKept", stranger)


async def test_a_namespace_with_the_right_name_and_label_is_not_adopted_if_it_was_there_before(
    tenant: Tenant,
) -> None:
    await tenant.project()
    await tenant.sandbox.harness.stop()
    made = await tenant.environment()
    name = tenant.namespace_of("one")
    stranger = await tenant.sandbox.make_namespace(name, **{OWNER_UID: made.metadata.uid})
    await tenant.start()
    failed = await tenant.reaches("one", "NamespaceReady", "False", "NamespaceNotOurs")
    assert failed.status.namespace is None
    await tenant.client.delete(Environment, "one", namespace=tenant.home)
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
    left = await tenant.sandbox.get("v1/Namespace", name, namespace="")
    assert left["metadata"]["uid"] == stranger["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


async def test_a_deleted_project_leaves_a_namespace_alone_that_only_has_its_label(tenant: Tenant) -> None:
    made = await tenant.project()
    await tenant.sandbox.condition(Project, "app")
    stranger = f"payroll-prod-{tenant.sandbox.unique}"
    await tenant.sandbox.make_namespace(stranger, **{OWNER_UID: made.metadata.uid})
    await tenant.client.delete(Project, "app", namespace=tenant.name)
    await tenant.sandbox.gone(Project, "app", namespace=tenant.name)
    left = await tenant.sandbox.get("v1/Namespace", stranger, namespace="")
    assert "deletionTimestamp" not in left["metadata"]


async def test_a_pod_lost_after_the_rollouts_deadline_degrades_the_environment_and_does_not_fail_it(
    tenant: Tenant,
) -> None:
    await tenant.sandbox.harness.stop()
    await tenant.start(Settings(rollout_timeout=20))
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.clock.sleep(21)
    namespace = tenant.namespace_of("one")
    async with closed_nodes(tenant.client):
        await tenant.client.delete_collection("v1/Pod", namespace=namespace)
        degraded = await tenant.reaches("one", "DeploymentReady", "False", "Degraded")
        await tenant.clock.sleep(7)
        assert (await tenant.get()).status.phase == "Degraded"
    assert (degraded.status.phase, degraded.status.failure) == ("Degraded", None)
    await tenant.sandbox.event("Degraded", "Environment one: ")
    recovered = await tenant.ready()
    assert recovered.status.phase == "Ready"
    assert recovered.status.rollout == degraded.status.rollout


@pytest.mark.long
async def test_a_hundred_thousand_replicas_exceed_the_quota_and_the_control_plane_goes_on(
    tenant: Tenant,
) -> None:
    await tenant.project()
    tenant.systems.renderer.objects = [deployment("web", "app:1", replicas=100_000), service("web")]
    await tenant.environment("flood")
    failed = await tenant.reaches("flood", "DeploymentReady", "False", "QuotaExceeded", seconds=300)
    assert failed.status.phase == "Failed"
    pods = (await tenant.client.list("v1/Pod", namespace=tenant.namespace_of("flood"))).items
    assert len(pods) <= 50
    tenant.systems.renderer.objects = None
    await tenant.environment("other")
    await tenant.ready("other")


async def test_a_volume_of_a_hundred_tebibytes_is_refused_from_the_first_moment(tenant: Tenant) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Ti"}}},
    }
    await tenant.project()
    tenant.systems.renderer.objects = [claim, deployment("web", "app:1"), service("web")]
    await tenant.environment("greedy")
    failed = await tenant.reaches("greedy", "DeploymentReady", "False", "QuotaExceeded")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "PersistentVolumeClaim data"


async def test_an_environment_whose_project_sets_no_quota_has_the_default_one(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    quota = await tenant.client.get("v1/ResourceQuota", "kapsa-quota", namespace=tenant.namespace_of("one"))
    expected = {
        "requests.cpu": "8",
        "limits.cpu": "8",
        "requests.memory": "16Gi",
        "limits.memory": "16Gi",
        "requests.storage": "50Gi",
        "requests.ephemeral-storage": "64Gi",
        "limits.ephemeral-storage": "64Gi",
        "pods": "50",
        "count/pods": "500",
        "count/configmaps": "100",
        "count/persistentvolumeclaims": "100",
    }
    assert quota["spec"]["hard"].items() >= expected.items()
    assert quota["status"]["hard"] == quota["spec"]["hard"], "it was enforced before anything was applied"
    limits = await tenant.client.get("v1/LimitRange", "kapsa-limits", namespace=tenant.namespace_of("one"))
    container = {
        "type": "Container",
        "default": {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "2Gi"},
        "defaultRequest": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "128Mi"},
    }
    assert limits["spec"] == {"limits": [container]}


async def test_a_preview_expires_a_ttl_after_its_commit_was_made_not_after_it_was_seen(
    tenant: Tenant,
) -> None:
    made = (tenant.clock.now() - timedelta(hours=1)).replace(microsecond=0)
    tenant.systems.git.push("login", committed_at=made)
    await tenant.project(previewEnvironments={"enabled": True, "ttl": "2h"})
    await tenant.sandbox.exists(Environment, "login", namespace=tenant.home)
    ready = await tenant.ready("login")
    assert ready.status.expires_at == made + timedelta(hours=2)


async def test_branches_without_a_recent_commit_get_no_preview(tenant: Tenant) -> None:
    for number in range(40):
        tenant.systems.git.push(f"old{number}", committed_at=datetime(2019, 5, 1, tzinfo=UTC))
    tenant.systems.git.push("login", committed_at=tenant.clock.now() - timedelta(hours=1))
    await tenant.project(previewEnvironments={"enabled": True})
    await tenant.sandbox.exists(Environment, "login", namespace=tenant.home)
    await tenant.clock.sleep(5)
    assert set(await names(tenant)) == {"login"}
    assert (await tenant.project_now()).status.queue == []


async def test_at_most_ten_previews_exist_unless_the_project_says_otherwise(tenant: Tenant) -> None:
    for number in range(12):
        tenant.systems.git.push(f"branch{number}")
    await tenant.project(previewEnvironments={"enabled": True})

    async def two_wait() -> bool:
        return len((await tenant.project_now()).status.queue) == 2

    await tenant.sandbox.until(two_wait, "two previews wait in the queue")
    await tenant.clock.sleep(5)
    assert len(await names(tenant)) == 10


async def test_a_clock_that_jumps_ahead_deletes_no_environment(sandbox: Sandbox) -> None:
    tenant, clock = Tenant(sandbox), settable(sandbox)
    await tenant.start()
    await tenant.project()
    made = {"one", "two", "three", "four"}
    for name in sorted(made):
        await tenant.environment(name, ttl="24h")
    for name in sorted(made):
        await tenant.ready(name)
    clock.ahead = MONTH
    for name in sorted(made):
        touched = {"metadata": {"annotations": {"touched": "true"}}, "spec": {"config": {}}}
        await tenant.client.patch(Environment, name, touched, namespace=tenant.home)
    await sandbox.event("ClockJumped")
    await tenant.clock.sleep(5)
    assert await names(tenant) == made


async def test_a_clock_that_is_wrong_from_the_start_deletes_not_even_a_single_environment(
    sandbox: Sandbox,
) -> None:
    tenant, clock = Tenant(sandbox), settable(sandbox)
    await tenant.start()
    await tenant.project()
    await tenant.environment(ttl="24h")
    await tenant.ready()
    for _ in range(2):
        await sandbox.harness.kill()
        clock.ahead = MONTH
        await tenant.start()
        await sandbox.event("ClockJumped", "ahead of the API server's")
        await tenant.clock.sleep(5)
        assert await names(tenant) == {"one"}


async def test_a_clock_that_was_behind_does_not_shorten_the_life_of_fresh_previews(sandbox: Sandbox) -> None:
    tenant, clock = Tenant(sandbox), settable(sandbox)
    clock.ahead = -timedelta(days=10)
    made = {"login", "cart"}
    for branch in made:
        tenant.systems.git.push(branch, committed_at=tenant.clock.now() - timedelta(hours=1))
    await tenant.start()
    await tenant.project(previewEnvironments={"enabled": True})
    await tenant.environment(ttl="24h")
    for name in (*made, "one"):
        ready = await tenant.ready(name)
        assert ready.status.expires_at is not None
        assert ready.status.expires_at > tenant.clock.now() + timedelta(hours=22)
    await sandbox.harness.kill()
    clock.ahead = timedelta()
    await tenant.start()
    await tenant.clock.sleep(5)
    assert await names(tenant) == {*made, "one"}


async def test_of_four_environments_that_expired_while_the_operator_was_away_one_goes(
    sandbox: Sandbox,
) -> None:
    tenant = Tenant(sandbox)
    await tenant.start()
    await tenant.project()
    overdue = {f"env{number}" for number in range(4)}
    for name in overdue:
        await tenant.environment(name, ttl="24h")
    for name in overdue:
        await tenant.ready(name)
    await sandbox.harness.stop()
    for name in overdue:
        await tenant.environment(name, ttl="1s")
    await tenant.clock.sleep(2)
    await tenant.start()

    async def one_is_gone() -> bool:
        return len(await names(tenant)) == 3

    await sandbox.until(one_is_gone, "one of four environments has expired")
    await sandbox.event("ExpiryBraked", "at most 30 % of a group")
    left = await names(tenant)
    await tenant.restart()
    await sandbox.at_rest(5)
    assert await names(tenant) == left < overdue


@pytest.mark.virtual_time
@pytest.mark.long
async def test_of_many_overdue_environments_a_third_goes_at_once_however_often_the_operator_restarts(
    sandbox: Sandbox,
) -> None:
    tenant = Tenant(sandbox)
    await tenant.start()
    await tenant.project()
    for number in range(10):
        await tenant.environment(f"env{number}", ttl="24h")
    for number in range(10):
        await tenant.ready(f"env{number}")
    await sandbox.harness.stop()
    await tenant.clock.sleep(25 * 3600)
    for _ in range(3):
        await tenant.start()

        async def some_are_gone() -> bool:
            return len(await names(tenant)) == 7

        await sandbox.until(some_are_gone, "three of ten environments have expired")
        await sandbox.event("ExpiryBraked")
        await tenant.clock.sleep(300)
        assert len(await names(tenant)) == 7
        await sandbox.harness.kill()
    await tenant.start()
    allowed = {"metadata": {"annotations": {ALLOW_MASS_DELETION: "true"}}}
    await tenant.client.patch(Project, "app", allowed, namespace=tenant.name)

    async def all_are_gone() -> bool:
        return not await names(tenant)

    await sandbox.until(all_are_gone, "all environments have expired")


async def test_a_wrong_clock_deletes_not_even_a_single_preview_environment(sandbox: Sandbox) -> None:
    clock = settable(sandbox)
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask(ttl_seconds=86_400)
    await preview.ready()
    await sandbox.harness.kill()
    clock.ahead = MONTH
    await sandbox.start(make_operator())
    await sandbox.event("ClockJumped", "ahead of the API server's")
    await sandbox.clock.sleep(5)
    left = await sandbox.client.get(PreviewEnvironment, preview.name, namespace=sandbox.namespace)
    assert not left.metadata.deleting


async def test_a_fresh_environment_has_the_phase_pending(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(suspended=True)
    await tenant.reaches("one", "Ready", "False", "Suspended")
    kind = "catalyst.catalyst.dev/v1alpha1/Environment"
    read = await tenant.client.get(kind, "one", namespace=tenant.home)
    assert read["status"]["phase"] == "Pending"


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (
            Project,
            {"source": {"repositoryUrl": "https://git.example.com/x"}, "deployment": {"type": "image"}},
        ),
        (Environment, {"projectRef": {"name": "app"}, "source": {"commitSha": "a" * 40}}),
    ],
)
async def test_an_administrator_limits_what_a_team_creates_by_a_quota_of_objects(
    sandbox: Sandbox, kind: Any, spec: dict[str, Any]
) -> None:
    counted = f"count/{kind.definition.plural}.{kind.definition.group}"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": sandbox.namespace},
        "spec": {"hard": {counted: "1"}},
    }
    await sandbox.client.create(quota)

    async def is_enforced() -> Any:
        live = await sandbox.get("v1/ResourceQuota", "team")
        return counted in ((live.get("status") or {}).get("hard") or {})

    await sandbox.until(is_enforced, "the quota is enforced", seconds=180)
    await sandbox.apply(kind, "first", spec)
    with pytest.raises(Forbidden, match="exceeded quota"):
        await sandbox.apply(kind, "second", spec)
