"""The build namespace: it has walls before a build runs in it, and they are put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from kapsa.environments.build.engines import BuildEngines
from kapsa.environments.build.walls import build_walls
from kapsa.environments.names import MANAGED_BY, OPERATOR, OWNER, OWNER_UID, TEAM
from kapsa.environments.namespace_objects.builds import BUILD as BUILD_LABEL
from kapsa.environments.resources import Project
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.namespaces import ForeignNamespaceError, refuse_reserved
from kapsa.runtime import Call
from tests.environments.announced_address import PUBLIC_ADDRESS, announce, closed
from tests.environments.tenant import BUILD, REPOSITORY, Tenant, shared_registry

JOB = "batch/v1/Job"
POLICY = "networking.k8s.io/v1/NetworkPolicy"


async def built(tenant: Tenant, commit: str = "one", project: Mapping[str, Any] = BUILD, **more: Any) -> None:
    """Start a build in a namespace that no other test uses, and wait for its Job, which is written last."""
    await start_build(tenant, commit, project, **more)

    async def jobs() -> list[Any]:
        return (await tenant.client.list(JOB, namespace=namespace_of(tenant))).items

    await tenant.sandbox.until(jobs, "the build has a Job")


async def start_build(
    tenant: Tenant, commit: str = "one", project: Mapping[str, Any] = BUILD, **more: Any
) -> None:
    """Start a build there, with more settings and the operator's own engines."""
    if tenant.sandbox.harness.cluster.engine == "embedded":
        tenant.sandbox.harness.cluster.workloads.delay(finish=600)
    await tenant.sandbox.harness.kill()
    settings = Settings(build_namespace=namespace_of(tenant), **more)
    tenant.systems.builds = BuildEngines(settings)
    await tenant.start(settings)
    await tenant.project(**project)
    await tenant.environment(commit=commit)


def namespace_of(tenant: Tenant) -> str:
    return f"builds-{tenant.sandbox.unique}"


async def walls(tenant: Tenant, kind: str) -> dict[str, Any]:
    listed = (await tenant.client.list(kind, namespace=namespace_of(tenant))).items
    return {each["metadata"]["name"]: each["spec"] for each in listed}


async def test_every_wall_of_the_environment_and_of_its_build_is_written_before_the_build(
    tenant: Tenant,
) -> None:
    await built(tenant)
    writes = [each.call for each in tenant.sandbox.writes() if each.status in (200, 201)]
    first = next(number for number, each in enumerate(writes) if each.resource == "jobs")
    assert writes[first].namespace == namespace_of(tenant)
    policies = {("networkpolicies", f"kapsa-{name}") for name in ("default-deny", "dns", "internet")}
    builds = {("resourcequotas", "kapsa-builds"), ("limitranges", "kapsa-builds"), *policies}
    assert builds <= _written(writes[:first], namespace_of(tenant))
    environment = {
        ("resourcequotas", "kapsa-quota"),
        ("limitranges", "kapsa-limits"),
        ("serviceaccounts", "default"),
        *policies,
        *(
            ("networkpolicies", f"kapsa-{name}")
            for name in ("same-namespace", "ingress-controller", "acme-solver")
        ),
    }
    assert environment <= _written(writes[:first], tenant.namespace_of("one"))


def _written(writes: Sequence[Call], namespace: str) -> set[tuple[str, str]]:
    """Return the resource and name of what was written in a namespace."""
    return {(each.resource, each.name) for each in writes if each.namespace == namespace}


async def test_builds_are_behind_a_default_deny_with_what_a_build_needs(tenant: Tenant) -> None:
    await built(tenant)
    policies = await walls(tenant, POLICY)
    assert set(policies) == {"kapsa-default-deny", "kapsa-dns", "kapsa-internet"}
    denied = policies["kapsa-default-deny"]
    assert (denied["podSelector"], set(denied["policyTypes"])) == ({}, {"Ingress", "Egress"})
    assert not any(each.get("ingress") for each in policies.values()), "nothing reaches a build"
    (rule,) = policies["kapsa-internet"]["egress"]
    assert {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"} <= closed(rule)


@pytest.mark.virtual_time
async def test_builds_do_not_reach_a_public_address_that_the_api_server_announces(tenant: Tenant) -> None:
    await announce(tenant.sandbox)
    await built(tenant)
    (rule,) = (await walls(tenant, POLICY))["kapsa-internet"]["egress"]
    assert f"{PUBLIC_ADDRESS}/32" in closed(rule)


async def test_builds_have_a_quota_and_limits(tenant: Tenant) -> None:
    await built(tenant)
    (quota,) = (await walls(tenant, "v1/ResourceQuota")).values()
    assert {"pods", "requests.cpu", "requests.memory", "requests.ephemeral-storage"} <= set(quota["hard"])
    (limits,) = (await walls(tenant, "v1/LimitRange")).values()
    (container,) = limits["limits"]
    assert {"cpu", "memory", "ephemeral-storage"} == set(container["default"])
    assert {"cpu", "memory", "ephemeral-storage"} == set(container["max"])


async def containers_of_a_build(tenant: Tenant, *, engine: str) -> dict[str, dict[str, Any]]:
    """Build with a Registry, over plain HTTP and with credentials to push. Returns the containers of the pod by name.

    Each has the security context of the pod as its default.
    """
    await shared_registry(tenant, insecure=True)
    registry = {"name": tenant.registry, "imageRepository": f"{tenant.name}/app"}
    build = {"strategy": "dockerfile", "engine": engine}
    await built(tenant, project={**BUILD, "build": build, "registry": registry})

    async def pods() -> list[Any]:
        return (await tenant.client.list("v1/Pod", namespace=namespace_of(tenant))).items

    (pod,) = await tenant.sandbox.until(pods, "the build has a pod", seconds=180)
    spec = pod["spec"]
    return {
        each["name"]: {**each, "securityContext": {**spec["securityContext"], **each["securityContext"]}}
        for each in (*spec["initContainers"], *spec["containers"])
    }


@pytest.mark.parametrize(("engine", "unconfined"), [("buildkit", {"build"}), ("kaniko", set[str]())])
async def test_the_pod_of_a_build_is_confined_where_its_engine_runs_so(
    tenant: Tenant, engine: str, unconfined: set[str]
) -> None:
    containers = await containers_of_a_build(tenant, engine=engine)
    contexts = {name: each["securityContext"] for name, each in containers.items()}
    seccomp = {name: each["seccompProfile"]["type"] for name, each in contexts.items()}
    assert {name for name, profile in seccomp.items() if profile != "RuntimeDefault"} == unconfined
    assert {name for name, each in contexts.items() if "appArmorProfile" in each} == unconfined
    assert not [name for name, each in contexts.items() if each.get("privileged")]
    assert not [name for name, each in contexts.items() if "fsGroup" in each], "no directory is setgid"


async def test_what_a_build_runs_reaches_no_credentials_to_push_and_pulls_as_the_registry_demands(
    tenant: Tenant,
) -> None:
    containers = await containers_of_a_build(tenant, engine="buildkit")
    mounts = {
        name: {mount["name"] for mount in each["volumeMounts"]} & {"git", "registry", "pull"}
        for name, each in containers.items()
    }
    assert [name for name, held in mounts.items() if "registry" in held] == ["push"]
    assert mounts["build"] <= {"pull"}
    fetch = {each["name"]: each.get("value") for each in containers["source"]["env"]}
    assert fetch["BUILDKITD_CONFIG"] == f'[registry."{tenant.registry_host}"]\nhttp = true\ninsecure = true'
    assert "--insecure" in containers["push"]["args"]


async def test_a_wall_that_somebody_removes_is_back_before_the_next_build(tenant: Tenant) -> None:
    await built(tenant)
    await tenant.client.delete(POLICY, "kapsa-default-deny", namespace=namespace_of(tenant))
    await tenant.environment(commit="two")
    await tenant.sandbox.exists(POLICY, "kapsa-default-deny", namespace=namespace_of(tenant))


async def test_a_second_build_writes_no_wall_again(tenant: Tenant) -> None:
    await built(tenant)
    before = len(tenant.sandbox.writes())
    await tenant.environment(commit="two")
    await tenant.clock.sleep(10)
    written = [str(each.call) for each in tenant.sandbox.writes()[before:]]
    assert not [each for each in written if "networkpolicies" in each and namespace_of(tenant) in each]


def test_private_ranges_that_builds_need_are_named_by_a_setting() -> None:
    settings = Settings(build_egress_cidrs=("10.1.2.0/24",))
    (policy,) = (each for each in build_walls(settings, ()) if each["metadata"]["name"] == "kapsa-internet")
    assert {"ipBlock": {"cidr": "10.1.2.0/24"}} in policy["spec"]["egress"][0]["to"]


def wall(kind: str, **settings: Any) -> dict[str, Any]:
    (made,) = (each for each in build_walls(Settings(**settings), ()) if each["kind"] == kind)
    spec: dict[str, Any] = made["spec"]
    return spec


def test_one_container_gets_a_part_of_the_quota_only() -> None:
    (container,) = wall("LimitRange")["limits"]
    assert container["max"] == {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "125Gi"}
    (container,) = wall("LimitRange", build_quota_cpu="1", build_quota_memory="2Gi")["limits"]
    assert container["max"] == {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "125Gi"}
    assert container["default"] == {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "20Gi"}


def a_build(team: str, namespace: str) -> dict[str, Any]:
    """Return a Job of another team that waits for a pod."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "push", "image": "push"}]}
    labels = {MANAGED_BY: OPERATOR, OWNER_UID: "other", TEAM: team, BUILD_LABEL: "other"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "other", "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": pod}},
    }


@pytest.mark.virtual_time
async def test_a_team_that_has_used_its_share_waits_while_another_team_builds(tenant: Tenant) -> None:
    await built(tenant, build_quota_pods=2)
    await tenant.reaches("one", "BuildReady", "False", "Building")
    await tenant.client.create(a_build("another-team", namespace_of(tenant)))
    await tenant.environment("two", commit="two")
    await tenant.reaches("two", "BuildReady", "False", "BuildQueued")
    await tenant.client.delete(JOB, "other", namespace=namespace_of(tenant), propagation="Background")
    await tenant.reaches("two", "BuildReady", "False", "Building")


@pytest.mark.virtual_time
async def test_a_team_alone_starts_no_more_builds_than_the_quota_admits(tenant: Tenant) -> None:
    await built(tenant, build_quota_pods=2)
    await tenant.environment("two", commit="two")
    await tenant.reaches("two", "BuildReady", "False", "Building")
    await tenant.environment("three", commit="three")
    await tenant.reaches("three", "BuildReady", "False", "BuildQueued")
    jobs = (await tenant.client.list(JOB, namespace=namespace_of(tenant))).items
    assert len(jobs) == 2, "none waits in front of another team's"


@pytest.mark.virtual_time
async def test_environments_that_need_a_build_at_the_same_time_stay_within_the_share(tenant: Tenant) -> None:
    await built(tenant, build_quota_pods=2)
    await tenant.sandbox.harness.stop()
    names = [f"env{number}" for number in range(6)]
    for name in names:
        await tenant.environment(name, commit=name)
    await tenant.start()
    for name in names:
        await tenant.reaches(name, "BuildReady", "False")
    await tenant.sandbox.at_rest()
    jobs = (await tenant.client.list(JOB, namespace=namespace_of(tenant))).items
    assert len(jobs) == 2


@pytest.mark.virtual_time
async def test_a_build_that_runs_too_long_has_failed(tenant: Tenant) -> None:
    await built(tenant, build_timeout=60)
    failed = await tenant.reaches("one", "BuildReady", "False", "BuildFailed", seconds=600)
    assert failed.status.failure is not None
    assert "deadline" in failed.status.failure.message


@pytest.mark.virtual_time
async def test_a_build_that_waits_longer_than_its_time_for_a_pod_has_not_failed(tenant: Tenant) -> None:
    await tenant.sandbox.make_namespace(namespace_of(tenant), **{MANAGED_BY: OPERATOR})
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": namespace_of(tenant)},
        "spec": {"hard": {"pods": "0"}},
    }
    await tenant.client.create(quota)
    await built(tenant, build_timeout=60)
    await tenant.reaches("one", "BuildReady", "False", "Building")
    await tenant.clock.sleep(3600)
    await tenant.reaches("one", "BuildReady", "False", "Building")
    tenant.sandbox.harness.cluster.workloads.delay(finish=1)
    await tenant.client.delete("v1/ResourceQuota", "full", namespace=namespace_of(tenant))
    await tenant.reaches("one", "BuildReady", "False", "ImageNotPushed", seconds=1200)


@pytest.mark.virtual_time
async def test_a_build_that_has_waited_too_long_for_a_pod_is_started_again(tenant: Tenant) -> None:
    await built(tenant)
    await tenant.reaches("one", "BuildReady", "False", "Building")
    (job,) = (await tenant.client.list(JOB, namespace=namespace_of(tenant))).items
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": now}
        for kind in ("FailureTarget", "Failed")
    ]
    name = job["metadata"]["name"]
    status = {"status": {"startTime": now, "conditions": conditions}}
    await tenant.client.patch(JOB, name, status, namespace=namespace_of(tenant), subresource="status")

    async def restarted() -> bool:
        current = await tenant.sandbox.get(JOB, name, namespace=namespace_of(tenant))
        return current is not None and current["metadata"]["uid"] != job["metadata"]["uid"]

    await tenant.sandbox.until(restarted, "the build is started again")
    await tenant.reaches("one", "BuildReady", "False", "Building")


@pytest.mark.virtual_time
async def test_a_build_of_the_same_name_but_of_another_project_is_refused(tenant: Tenant) -> None:
    await built(tenant)
    await tenant.reaches("one", "BuildReady", "False", "Building")
    (job,) = (await tenant.client.list(JOB, namespace=namespace_of(tenant))).items
    theirs = {"metadata": {"annotations": {OWNER: "evil-app/one"}, "labels": {OWNER_UID: "evil"}}}
    await tenant.client.patch(JOB, job["metadata"]["name"], theirs, namespace=namespace_of(tenant))
    await tenant.environment("two", commit="one")
    refused = await tenant.reaches("two", "BuildReady", "False", "BuildNotOurs")
    assert refused.status.failure is not None
    assert "its owner is evil-app/one" in refused.status.failure.message


async def test_builds_do_not_start_in_a_namespace_that_the_operator_did_not_make(tenant: Tenant) -> None:
    await tenant.sandbox.make_namespace(namespace_of(tenant))
    await start_build(tenant)
    refused = await tenant.reaches("one", "BuildReady", "False", "BuildNamespaceNotOurs")
    assert refused.status.failure is not None
    assert namespace_of(tenant) in refused.status.failure.message
    assert (await tenant.client.list("v1/Secret", namespace=namespace_of(tenant))).items == []
    assert await walls(tenant, "v1/ResourceQuota") == {}


async def test_builds_start_in_a_namespace_that_an_administrator_labelled_for_them(tenant: Tenant) -> None:
    await tenant.sandbox.make_namespace(namespace_of(tenant), **{MANAGED_BY: OPERATOR})
    await built(tenant)


@pytest.mark.parametrize("owner", ["project", "environment"])
async def test_builds_do_not_start_in_the_namespace_of_a_team(tenant: Tenant, owner: str) -> None:
    await tenant.project(**BUILD)
    await tenant.environment("two")
    mine = tenant.home if owner == "project" else tenant.namespace_of("two")
    await tenant.sandbox.exists("v1/Namespace", mine)
    await tenant.sandbox.harness.kill()
    await tenant.start(Settings(build_namespace=mine))
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "BuildNamespaceNotOurs")


@pytest.mark.parametrize("setting", ["namespace", "build_namespace", "ingress_namespace"])
async def test_no_project_gets_a_namespace_of_the_operator(tenant: Tenant, setting: str) -> None:
    await tenant.sandbox.harness.kill()
    await tenant.start(msgspec.structs.replace(tenant.settings, **{setting: tenant.home}))
    spec = {"source": {"repositoryUrl": REPOSITORY}, "deployment": {"type": "manifest", "path": "deploy"}}
    await tenant.sandbox.apply(Project, "app", spec)
    refused = await tenant.sandbox.condition(Project, "app", "False", reason="NamespaceNotOurs")
    condition = refused.status.condition("Ready")
    assert condition is not None
    assert (
        condition.message
        == f"namespace {tenant.home} is reserved for the operator or the cluster: choose another name"
    )
    assert await tenant.sandbox.get("v1/Namespace", tenant.home) is None


async def test_no_environment_gets_a_namespace_of_the_operator(tenant: Tenant) -> None:
    await tenant.sandbox.harness.kill()
    inside = tenant.namespace_of("one")
    await tenant.start(Settings(build_namespace=inside))
    await tenant.project()
    await tenant.environment()
    await tenant.reaches("one", "NamespaceReady", "False", "NamespaceNotOurs")
    assert await tenant.sandbox.get("v1/Namespace", inside) is None


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public-app", "gateways"])
def test_the_namespaces_of_the_cluster_are_reserved(name: str) -> None:
    settings = Settings(route_kind="HTTPRoute", gateway="gateways/shared")
    with pytest.raises(ForeignNamespaceError, match=f"namespace {name} is reserved"):
        refuse_reserved(name, settings)
    refuse_reserved("kubernetes-app", settings)
