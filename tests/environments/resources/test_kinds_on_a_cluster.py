"""The kinds on a cluster: CRDs and documented examples are accepted, and invalid values are rejected."""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kapsa.devcluster import DevCluster
from kapsa.environments.resources import (
    KINDS,
    DomainPool,
    Environment,
    PreviewEnvironment,
    Project,
    Registry,
)
from kapsa.runtime import Client, ClientError, Invalid, custom_resource_definitions
from tests.behaviour.environments.seed_examples import ENVIRONMENT, PREVIEW, PROJECT
from tests.eventually import eventually

IDS = ["Project", "Environment", "PreviewEnvironment"]


@pytest_asyncio.fixture
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    """A client of a cluster that has the kinds."""
    async with Client.connect(kubeconfig=cluster.kubeconfig) as connected:
        for definition in custom_resource_definitions(KINDS):
            await connected.apply(definition, force=True, field_validation="Strict")

        async def all_are_served() -> bool:
            try:
                for kind in KINDS:
                    await connected.list(kind)
            except ClientError:
                return False
            return True

        await eventually(all_are_served, bool, "the kinds are served")
        yield connected


async def in_namespace(client: Client, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest in a namespace of its own, so that tests on one real cluster do not collide."""
    name = f"{manifest['metadata']['namespace']}-{uuid.uuid4().hex[:8]}"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    made = copy.deepcopy(manifest)
    made["metadata"]["namespace"] = name
    return made


async def applied(client: Client, manifest: dict[str, Any]) -> Any:
    return await client.apply(manifest, field_manager="person", field_validation="Strict")


@pytest.mark.parametrize("text", [PROJECT, ENVIRONMENT, PREVIEW], ids=IDS)
async def test_the_documented_examples_apply_under_strict_validation(client: Client, text: str) -> None:
    manifest = await in_namespace(client, yaml.safe_load(text))
    stored = await applied(client, manifest)
    assert stored["metadata"]["name"] == manifest["metadata"]["name"]
    assert stored.get("status", {}).get("phase") != "Ready", "a status is the operator's, not the applier's"


async def test_defaults_are_filled_in_as_documented(client: Client) -> None:
    project = Project.from_dict(await applied(client, await in_namespace(client, yaml.safe_load(PROJECT))))
    assert project.spec.preview_environments.enabled is False
    assert str(project.spec.preview_environments.ttl) == "168h"
    assert project.spec.preview_environments.pull_requests is True
    environment = Environment.from_dict(
        await applied(client, await in_namespace(client, yaml.safe_load(ENVIRONMENT)))
    )
    assert environment.spec.runtime.replicas == 1
    assert environment.spec.ingress.enabled is True
    assert environment.spec.ingress.path == "/"
    assert environment.spec.ingress.tls.enabled is True


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    parent_object = made["spec"]
    for parent in parents:
        parent_object = parent_object.setdefault(parent, {})
    if value is None:
        del parent_object[last]
    else:
        parent_object[last] = value
    return made


NONSENSE: dict[str, list[tuple[str, Any, str]]] = {
    PROJECT: [
        ("source.repositoryUrl", "ext::sh -c x", "spec.source.repositoryUrl"),
        ("source.repositoryUrl", "https://-oProxyCommand=x/y", "spec.source.repositoryUrl"),
        ("source.repositoryUrl", "https://me:secret@host/x", "must not contain a password"),
        ("source.repositoryUrl", None, "spec.source.repositoryUrl: Required value"),
        ("source.branch", "--upload-pack=x", "spec.source.branch"),
        ("source.pollInterval", "10s", "must be 60s or longer"),
        ("source.pollInterval", "soon", "spec.source.pollInterval"),
        ("deployment.type", "terraform", "spec.deployment.type"),
        ("deployment.path", "/etc", "spec.deployment.path"),
        ("deployment.path", "charts/../../etc", "must stay inside the repository"),
        ("build", {"strategy": "dockerfile"}, "a build needs a registry"),
        ("build", {"strategy": "dockerfile", "engine": "kpack"}, "kpack requires strategy buildpack"),
        ("domain.subdomain", "a.b", "spec.domain.subdomain"),
        ("resources.defaultQuota.cpu", "lots", "spec.resources.defaultQuota.cpu"),
        ("previewEnvironments.maxActive", 0, "spec.previewEnvironments.maxActive"),
    ],
    ENVIRONMENT: [
        ("source.commitSha", "main", "spec.source.commitSha"),
        ("source.commitSha", "--upload-pack=sh", "spec.source.commitSha"),
        ("type", "production", "spec.type"),
        ("ingress.host", "Not_A_Host", "spec.ingress.host"),
        ("ingress.path", "x", "spec.ingress.path"),
        ("ttl", "1 week", "spec.ttl"),
        ("runtime.replicas", -1, "spec.runtime.replicas"),
    ],
    PREVIEW: [
        ("pr_number", 0, "spec.pr_number"),
        ("pr_number", 1000000, "spec.pr_number"),
        ("branch_name", "x" * 256, "spec.branch_name"),
        ("image_tag", "a b", "spec.image_tag"),
        ("image", None, "spec.image: Required value"),
        ("ttl_seconds", 59, "spec.ttl_seconds"),
        ("ttl_seconds", 86401, "spec.ttl_seconds"),
    ],
}


@pytest.mark.parametrize("text", NONSENSE, ids=IDS)
async def test_nonsense_is_refused_with_the_field_that_is_wrong(client: Client, text: str) -> None:
    sound = await in_namespace(client, yaml.safe_load(text))
    for path, value, problem in NONSENSE[text]:
        with pytest.raises(Invalid, match=re.escape(problem)):
            await applied(client, changed(sound, path, value))


@pytest.mark.parametrize(("path", "value"), [("pr_number", 43), ("branch_name", "other")])
async def test_the_identity_of_a_preview_cannot_be_changed(client: Client, path: str, value: Any) -> None:
    manifest = await in_namespace(client, yaml.safe_load(PREVIEW))
    await applied(client, manifest)
    with pytest.raises(Invalid, match="cannot be changed once it is set"):
        await applied(client, changed(manifest, path, value))
    stored = await applied(client, changed(manifest, "image_tag", "newer"))
    assert PreviewEnvironment.from_dict(stored).spec.image_tag == "newer"


async def test_the_kinds_of_administrators_belong_to_the_cluster(client: Client) -> None:
    name = f"test-{uuid.uuid4().hex[:8]}"
    pool = {
        "apiVersion": "kapsa-project.io/v1alpha1",
        "kind": "DomainPool",
        "metadata": {"name": name},
        "spec": {"baseDomains": ["example.com"], "certManager": {"issuerRef": {"name": "le"}}},
    }
    registry = {
        "apiVersion": "kapsa-project.io/v1alpha1",
        "kind": "Registry",
        "metadata": {"name": name},
        "spec": {
            "type": "harbor",
            "endpoint": "registry.example.com:5000",
            "auth": {"secretRef": {"name": "login", "namespace": "kapsa-system"}},
        },
    }
    stored = DomainPool.from_dict(await applied(client, pool))
    assert stored.spec.allocation_policy.strategy == "round-robin"
    assert stored.spec.cert_manager is not None
    assert stored.spec.cert_manager.issuer_ref.kind == "ClusterIssuer"
    kept = Registry.from_dict(await applied(client, registry))
    assert kept.spec.image_pull_secret.generate_per_namespace is True
    assert kept.spec.insecure is False
    same = {"secretRef": {"name": "login", "namespace": "kapsa-system"}}
    own = [{"prefixes": ["a"], "pullSecretRef": same["secretRef"]}]
    for field, value in (("imagePullSecret", same), ("repositories", own)):
        with pytest.raises(Invalid, match="must not be the Secret of auth"):
            await applied(client, changed(registry, field, value))
    for manifest in (changed(pool, "baseDomains", []), changed(registry, "type", "floppy")):
        with pytest.raises(Invalid):
            await applied(client, manifest)


def test_every_field_of_every_kind_is_described() -> None:
    missing: list[str] = []

    def visit(node: dict[str, Any], path: str) -> None:
        for name, child in node.get("properties", {}).items():
            if not child.get("description"):
                missing.append(f"{path}.{name}")
            visit(child, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                visit(node[key], f"{path}[]")

    for definition in custom_resource_definitions(KINDS):
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            visit(schema["properties"][part], f"{definition['spec']['names']['kind']}.{part}")
    assert not missing
