"""The ownership of a namespace: decided by UIDs, never by names or labels alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kapsa.environments.names import OWNER, OWNER_UID
from kapsa.environments.namespace_objects.builds import BUILT_COMMIT
from kapsa.environments.resources import Environment, Project
from kapsa.environments.tenancy.api_server import SERVER_SERVICE, SERVER_SLICE
from tests.environments.fakes import commit_of, deployment
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time


async def test_a_namespace_says_whose_it_is_and_which_branch_it_shows(tenant: Tenant) -> None:
    await tenant.project()
    branch = "feature/login&more"
    made = await tenant.environment(source={"commitSha": commit_of("one"), "branch": branch})
    await tenant.ready()
    metadata = (await tenant.client.get("v1/Namespace", tenant.namespace_of("one")))["metadata"]
    labels = {
        "app.kubernetes.io/managed-by": "kapsa",
        "catalyst.dev/team": tenant.name,
        "catalyst.dev/project": "app",
        "catalyst.dev/environment": "one",
        "catalyst.dev/branch": "feature-loginmore",
        OWNER_UID: made.metadata.uid,
    }
    assert metadata["labels"].items() >= labels.items()
    assert (
        metadata["annotations"].items()
        >= {OWNER: f"{tenant.home}/one", "catalyst.dev/branch": branch}.items()
    )


async def test_a_namespace_that_only_says_it_is_a_projects_gets_nothing_of_it(tenant: Tenant) -> None:
    await tenant.project()
    forged = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "elsewhere",
            "annotations": {OWNER: f"{tenant.name}/app"},
            "labels": {OWNER_UID: "of-another-project"},
        },
    }
    await tenant.client.create(forged)
    spec = {"projectRef": {"name": "app"}, "source": {"commitSha": commit_of("one")}}
    await tenant.sandbox.apply(Environment, "one", spec, namespace="elsewhere")
    await tenant.clock.sleep(60)
    environment = await tenant.client.get(Environment, "one", namespace="elsewhere")
    condition = environment.status.condition("Ready")
    assert condition is not None
    assert condition.reason == "ProjectMissing"
    assert environment.status.namespace is None
    assert tenant.systems.renderer.requests == []


async def test_a_namespace_with_every_mark_of_a_project_gets_nothing_unless_the_project_names_it(
    tenant: Tenant,
) -> None:
    project = await tenant.project(secrets=[{"name": "database"}])
    forged = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "labelled-by-evil",
            "annotations": {OWNER: f"{tenant.name}/app"},
            "labels": {OWNER_UID: project.metadata.uid},
        },
    }
    await tenant.client.create(forged)
    spec = {"projectRef": {"name": "app"}, "source": {"commitSha": commit_of("one")}}
    await tenant.sandbox.apply(Environment, "one", spec, namespace="labelled-by-evil")
    await tenant.clock.sleep(60)
    environment = await tenant.client.get(Environment, "one", namespace="labelled-by-evil")
    condition = environment.status.condition("Ready")
    assert condition is not None
    assert condition.reason == "ProjectMissing"
    assert environment.status.namespace is None
    assert tenant.systems.renderer.requests == []


async def test_a_namespace_that_was_replaced_is_not_the_environments_whatever_its_labels_say(
    tenant: Tenant,
) -> None:
    await tenant.project()
    made = await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.harness.stop()
    name = tenant.namespace_of("one")
    await tenant.client.delete("v1/Namespace", name)
    await tenant.sandbox.gone("v1/Namespace", name, namespace="")
    forged = await tenant.sandbox.make_namespace(name, **{OWNER_UID: made.metadata.uid})
    await tenant.start()
    failed = await tenant.reaches("one", "NamespaceReady", "False", "NamespaceNotOurs")
    assert failed.status.failure is not None
    assert "is not the one in the status" in failed.status.failure.message
    await tenant.client.delete(Environment, "one", namespace=tenant.home)
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
    left = await tenant.sandbox.get("v1/Namespace", name, namespace="")
    assert left["metadata"]["uid"] == forged["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


async def test_a_project_of_the_same_name_does_not_get_the_environments_of_the_one_before(
    tenant: Tenant,
) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.harness.stop()
    await tenant.client.delete(Project, "app", namespace=tenant.name)
    await tenant.client.patch(Project, "app", {"metadata": {"finalizers": None}}, namespace=tenant.name)
    await tenant.sandbox.gone(Project, "app", namespace=tenant.name)
    await tenant.project()
    await tenant.start()
    await tenant.environment(commit="two")
    orphaned = await tenant.reaches("one", "Ready", "False", "ProjectMissing")
    assert orphaned.status.commit_sha == commit_of("one")
    refused = (await tenant.project_now()).status.condition("Ready")
    assert refused is not None
    assert refused.reason == "NamespaceNotOurs"


async def test_a_namespace_created_just_before_a_crash_goes_with_its_environment(tenant: Tenant) -> None:
    """A process can die between the creation of the namespace and the write of its UID to the status."""
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.harness.stop()
    announced = {"status": {"namespace": {"name": tenant.namespace_of("one"), "uid": None}}}
    await tenant.client.patch(Environment, "one", announced, namespace=tenant.home, subresource="status")
    await tenant.client.delete(Environment, "one", namespace=tenant.home)
    await tenant.start()
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home, seconds=120)
    assert await tenant.sandbox.get("v1/Namespace", tenant.namespace_of("one"), namespace="") is None


def runs(tenant: Tenant) -> float:
    """Return how often Environments were reconciled."""
    return sum(
        value
        for sample, value in tenant.sandbox.metrics().items()
        if "controller_reconciliations_total" in sample and 'controller="environment' in sample.lower()
    )


def marked(tenant: Tenant, manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return an object with all marks of an object of the environment."""
    metadata = {
        **manifest["metadata"],
        "namespace": namespace,
        "labels": {
            OWNER_UID: "any",
            BUILT_COMMIT: commit_of("one"),
            **manifest["metadata"].get("labels", {}),
        },
        "annotations": {OWNER: f"{tenant.home}/one"},
    }
    return {**manifest, "metadata": metadata}


def job(name: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "build", "image": "builder:1"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }


def named(
    kind: str, version: str = "v1", *, labels: Mapping[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    metadata = {"name": "forged", "labels": dict(labels or {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


FORGED = (
    named("ConfigMap"),
    named("Secret"),
    deployment("forged", "app:1", replicas=0),
    job("forged"),
    named("Service", labels=SERVER_SERVICE, spec={"ports": [{"port": 443}]}),
    named(
        "EndpointSlice",
        "discovery.k8s.io/v1",
        labels=SERVER_SLICE,
        addressType="IPv4",
        endpoints=[],
        ports=[],
    ),
)


async def write_often(tenant: Tenant, namespace: str) -> None:
    for manifest in FORGED:
        made = await tenant.client.create(marked(tenant, manifest, namespace))
        for number in range(3):
            patch = {"metadata": {"annotations": {"number": str(number)}}}
            await tenant.client.patch(
                f"{made['apiVersion']}/{made['kind']}", "forged", patch, namespace=namespace
            )
            await tenant.clock.sleep(5)


async def test_marks_in_the_namespace_of_another_team_do_not_run_an_environment(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.at_rest()
    before = runs(tenant)
    assert before > 0
    await tenant.sandbox.make_namespace("evil")
    await write_often(tenant, "evil")
    assert runs(tenant) == before
    await write_often(tenant, tenant.namespace_of("one"))
    assert runs(tenant) > before, "in the namespace of the environment they do"
