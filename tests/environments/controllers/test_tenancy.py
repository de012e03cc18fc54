"""Two teams share a Registry: none gets the images or the keys of the other."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kapsa.environments.resources import Registry
from tests.environments.fakes import commit_of, deployment, service
from tests.environments.tenant import Tenant, secret, shared_registry

IMAGE = {"deployment": {"type": "image"}}


def victim(tenant: Tenant, tag: str) -> str:
    """Return an image of another team."""
    return f"{tenant.registry_host}/victim/app:{tag}"


def registry_of(tenant: Tenant, repository: str) -> dict[str, Any]:
    return {"registry": {"name": tenant.registry, "imageRepository": repository}}


async def secrets_of(tenant: Tenant, name: str = "one") -> dict[str, str]:
    """Return the content of all Secrets in the namespace of an environment."""
    listed = (await tenant.client.list("v1/Secret", namespace=tenant.namespace_of(name))).items
    return {
        each["metadata"]["name"]: " ".join(
            base64.b64decode(value).decode() for value in (each.get("data") or {}).values()
        )
        for each in listed
    }


async def pull_logins(tenant: Tenant) -> list[str]:
    """Return the logins in the pull secret of an environment, as user and password."""
    content = json.loads((await secrets_of(tenant))["kapsa-registry"])
    return [base64.b64decode(each["auth"]).decode() for each in content["auths"].values()]


async def test_a_team_cannot_deploy_from_the_repository_of_another_team(tenant: Tenant) -> None:
    await shared_registry(tenant)
    tenant.systems.images.push(victim(tenant, commit_of("one")))
    await tenant.project(**registry_of(tenant, "victim/app"), **IMAGE)
    await tenant.environment()
    refused = await tenant.reaches("one", "BuildReady", "False", "RegistryNotAllowed")
    assert refused.status.failure is not None
    assert "repository victim/app" in refused.status.failure.message
    assert tenant.name in refused.status.failure.message, "it says which repositories the team may use"
    assert tenant.systems.images.asked == [], "not even the registry is asked about it"
    assert tenant.systems.renderer.requests == []


async def test_a_team_cannot_deploy_from_that_repository_without_naming_the_registry_either(
    tenant: Tenant,
) -> None:
    await shared_registry(tenant)
    tenant.systems.images.push(victim(tenant, commit_of("one")))
    await tenant.project(registry={"imageRepository": f"{tenant.registry_host}/victim/app"}, **IMAGE)
    await tenant.environment()
    failed = await tenant.reaches("one", "BuildReady", "False", "RegistryNotAllowed")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "Project app"
    assert tenant.systems.images.asked == []


async def test_a_team_uses_the_repositories_under_its_own_name_without_any_rule(tenant: Tenant) -> None:
    await shared_registry(tenant)
    digest = tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('one')}")
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"), **IMAGE)
    await tenant.environment()
    assert (await tenant.ready()).status.image == f"{tenant.registry_host}/{tenant.name}/app@{digest}"


@pytest.mark.parametrize("part", ["containers", "initContainers", "image volume"])
async def test_a_manifest_cannot_run_an_image_of_another_team(tenant: Tenant, part: str) -> None:
    await shared_registry(tenant)
    workload = deployment("web", "nginx:1")
    pod = workload["spec"]["template"]["spec"]
    if part == "containers":
        pod["containers"][0]["image"] = victim(tenant, "1")
    elif part == "initContainers":
        pod["initContainers"] = [{**pod["containers"][0], "name": "first", "image": victim(tenant, "1")}]
    else:
        pod["volumes"] = [{"name": "loot", "image": {"reference": victim(tenant, "1")}}]
    tenant.systems.renderer.objects = [workload, service("web")]
    await tenant.project()
    await tenant.environment()
    refused = await tenant.reaches("one", "DeploymentReady", "False", "ObjectRefused")
    assert refused.status.failure is not None
    assert f"it may not run {victim(tenant, '1')}" in refused.status.failure.message
    deployments = await tenant.client.list("apps/v1/Deployment", namespace=tenant.namespace_of("one"))
    assert deployments.items == []


async def test_a_registry_is_open_to_the_namespaces_it_names(tenant: Tenant) -> None:
    await shared_registry(tenant, allowedNamespaces={"names": ["victim"]})
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('one')}")
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"), **IMAGE)
    await tenant.environment()
    refused = await tenant.reaches("one", "BuildReady", "False", "RegistryNotAllowed")
    assert refused.status.failure is not None
    assert f"not open to namespace {tenant.name}" in refused.status.failure.message
    assert await secrets_of(tenant) == {}, "nor does it get the pull secret"
    ready = (await tenant.project_now()).status.condition("RegistryReady")
    assert ready is not None
    assert ready.reason == "RegistryNotAllowed"
    opened = {"spec": {"allowedNamespaces": {"names": ["victim", tenant.name]}}}
    await tenant.client.patch(Registry, tenant.registry, opened)
    await tenant.ready()


async def test_a_registry_is_opened_and_closed_by_a_label_of_the_namespace(tenant: Tenant) -> None:
    await shared_registry(tenant, allowedNamespaces={"selector": {"matchLabels": {"tier": "gold"}}})
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('one')}")
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"), **IMAGE)
    await tenant.environment()
    await tenant.reaches("one", "BuildReady", "False", "RegistryNotAllowed")
    await tenant.client.patch("v1/Namespace", tenant.name, {"metadata": {"labels": {"tier": "gold"}}})
    await tenant.ready()
    assert set(await secrets_of(tenant)) == {"kapsa-registry"}
    await tenant.client.patch("v1/Namespace", tenant.name, {"metadata": {"labels": {"tier": None}}})
    await tenant.reaches("one", "BuildReady", "False", "RegistryNotAllowed")
    assert await secrets_of(tenant) == {}


async def test_only_credentials_to_pull_reach_an_environment(tenant: Tenant) -> None:
    await shared_registry(tenant)
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('one')}")
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"), **IMAGE)
    await tenant.environment()
    await tenant.ready()
    assert set(await secrets_of(tenant)) == {"kapsa-registry"}
    assert await pull_logins(tenant) == ["reader:word-to-pull"]


async def test_without_credentials_to_pull_an_environment_gets_none_and_says_so(tenant: Tenant) -> None:
    await shared_registry(tenant, imagePullSecret={})
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('one')}")
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"), **IMAGE)
    await tenant.environment()
    ready = await tenant.ready()
    assert await secrets_of(tenant) == {}
    condition = ready.status.condition("NamespaceReady")
    assert condition is not None
    assert "imagePullSecret.secretRef" in condition.message


async def test_each_team_pulls_with_credentials_of_its_own(tenant: Tenant) -> None:
    mine = {
        "namespaces": {"names": [tenant.name]},
        "prefixes": ["ours/{namespace}"],
        "pullSecretRef": {"name": "team-pull", "namespace": tenant.admin},
    }
    await shared_registry(tenant, repositories=[mine])
    await secret(tenant, "team-pull", tenant.admin, username="team", password="word-of-the-team")
    repository = f"ours/{tenant.name}/app"
    tenant.systems.images.push(f"{tenant.registry_host}/{repository}:{commit_of('one')}")
    await tenant.project(**registry_of(tenant, repository), **IMAGE)
    await tenant.environment()
    await tenant.ready()
    assert await pull_logins(tenant) == ["team:word-of-the-team"]


def patient_reader(tenant: Tenant) -> dict[str, Any]:
    """Return a Deployment whose pods wait for the Secret for pulling images."""
    reader = deployment("web", "app:1")
    volume = {"name": "wait", "secret": {"secretName": "kapsa-registry", "optional": True}}
    reader["spec"]["template"]["spec"]["volumes"] = [volume]
    return reader


async def test_the_names_of_all_pull_secrets_are_reserved_whatever_the_project_uses(tenant: Tenant) -> None:
    await shared_registry(tenant, imagePullSecret={"name": "other-pull"})
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    assert {"kapsa-registry", "other-pull"} <= set(tenant.systems.renderer.requests[-1].pull_secrets)


async def test_credentials_to_pull_are_withheld_while_something_would_read_them(tenant: Tenant) -> None:
    # As deployed before the name was reserved, or before a Registry had credentials to pull.
    tenant.systems.renderer.objects = [patient_reader(tenant), service("web")]
    await shared_registry(tenant)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"))
    await tenant.sandbox.event("PullSecretWithheld", "Deployment web")
    assert await secrets_of(tenant) == {}

    tenant.systems.renderer.objects = [deployment("web", "app:2"), service("web")]
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('two')}")
    await tenant.environment(commit="two")
    await tenant.sandbox.exists("v1/Secret", "kapsa-registry", namespace=tenant.namespace_of("one"))
    for pod in (await tenant.client.list("v1/Pod", namespace=tenant.namespace_of("one"))).items:
        assert not any("secret" in each for each in pod["spec"].get("volumes") or ())


async def test_credentials_to_pull_are_withheld_from_a_pod_that_outlives_its_workload(tenant: Tenant) -> None:
    await shared_registry(tenant)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    spec = patient_reader(tenant)["spec"]["template"]["spec"]
    metadata = {"name": "old", "namespace": tenant.namespace_of("one")}
    await tenant.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"))
    await tenant.sandbox.event("PullSecretWithheld", "Pod old")
    assert await secrets_of(tenant) == {}
    await tenant.client.delete("v1/Pod", "old", namespace=tenant.namespace_of("one"))
    await tenant.sandbox.until(lambda: secrets_of(tenant), "the pull secret is copied", seconds=180)


async def waiting_job(tenant: Tenant) -> None:
    """Create a Job without pods, such as one of a CronJob that waits for its next attempt."""
    spec = {**patient_reader(tenant)["spec"]["template"]["spec"], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nightly-1", "namespace": tenant.namespace_of("one")},
        "spec": {"suspend": True, "template": {"spec": spec}},
    }
    await tenant.client.create(job)


async def test_credentials_to_pull_are_withheld_from_a_job_whose_next_pod_would_read_them(
    tenant: Tenant,
) -> None:
    await shared_registry(tenant)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await waiting_job(tenant)
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"))
    await tenant.sandbox.event("PullSecretWithheld", "Job nightly-1")
    assert await secrets_of(tenant) == {}


async def test_credentials_to_pull_are_withheld_from_an_earlier_template_of_a_paused_deployment(
    tenant: Tenant,
) -> None:
    # As deployed before paused Deployments were refused. With a replica, the Deployment scales up its last ReplicaSet.
    reader = patient_reader(tenant)
    reader["spec"]["replicas"] = 0
    tenant.systems.renderer.objects = [reader, service("web")]
    await shared_registry(tenant)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    paused = deployment("web", "app:2", replicas=0, paused=True)
    tenant.systems.renderer.objects = [paused, service("web")]
    tenant.systems.images.push(f"{tenant.registry_host}/{tenant.name}/app:{commit_of('two')}")
    await tenant.environment(commit="two")
    await tenant.reaches("one", "DeploymentReady", "True")
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"))
    await tenant.sandbox.event("PullSecretWithheld", "ReplicaSet web-")
    assert await secrets_of(tenant) == {}


async def held_back_update(tenant: Tenant) -> None:
    """Create a StatefulSet whose next pod has its first template, which reads the Secret, as its present one has."""
    inside, kind = tenant.namespace_of("one"), "apps/v1/StatefulSet"
    template = patient_reader(tenant)["spec"]["template"]
    spec = {
        "replicas": 1,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": template["spec"]},
    }
    metadata = {"name": "db", "namespace": inside}
    stateful_set = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
    await tenant.client.create(stateful_set)

    async def has_pod() -> bool:
        status = (await tenant.client.get(kind, "db", namespace=inside)).get("status") or {}
        return bool(status.get("currentRevision") and status.get("replicas"))

    await tenant.sandbox.until(has_pod, "the StatefulSet has its pod", seconds=180)
    clean = {"spec": {"template": {"spec": {"volumes": None}}}}
    await tenant.client.patch(kind, "db", clean, namespace=inside)


async def test_credentials_to_pull_are_withheld_from_an_earlier_template_of_a_stateful_set(
    tenant: Tenant,
) -> None:
    await shared_registry(tenant)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await held_back_update(tenant)
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"))
    # The pod may go at any time, and comes back from the first template.
    await tenant.sandbox.event("PullSecretWithheld", "Pod db-0 and 1 more")
    assert await secrets_of(tenant) == {}


@pytest.mark.virtual_time
async def test_a_job_that_has_ended_withholds_nothing(tenant: Tenant) -> None:
    await shared_registry(tenant)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await waiting_job(tenant)
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    await tenant.client.patch(
        "batch/v1/Job",
        "nightly-1",
        {"status": failed},
        namespace=tenant.namespace_of("one"),
        subresource="status",
    )
    await tenant.project(**registry_of(tenant, f"{tenant.name}/app"))
    await tenant.sandbox.until(lambda: secrets_of(tenant), "the pull secret is copied")
