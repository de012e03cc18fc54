"""The contract of the kinds: names, scopes, fields and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kapsa.environments.resources import KINDS
from kapsa.runtime import custom_resource_definitions

KNOWN_AS = {
    "Project": ("catalyst.catalyst.dev", "v1alpha1", "projects", "Namespaced", "proj"),
    "Environment": ("catalyst.catalyst.dev", "v1alpha1", "environments", "Namespaced", "env"),
    "DomainPool": ("kapsa-project.io", "v1alpha1", "domainpools", "Cluster", "dp"),
    "Registry": ("kapsa-project.io", "v1alpha1", "registries", "Cluster", "reg"),
    "PreviewEnvironment": ("devops.orima.com", "v1", "previewenvironments", "Namespaced", "preview"),
}
FIELDS = {
    "Project": """
        spec.source.repositoryUrl spec.source.branch spec.source.pollInterval spec.source.credentials.secretRef.name
        spec.deployment.type spec.deployment.path spec.deployment.values spec.deployment.service.name
        spec.deployment.service.port spec.build.strategy spec.build.engine spec.build.dockerfile spec.build.context
        spec.build.args spec.build.env[].name spec.build.resources spec.registry.name spec.registry.imageRepository
        spec.domain.subdomain spec.domain.domainPoolRef spec.resources.defaultQuota.cpu
        spec.resources.defaultQuota.memory spec.resources.defaultQuota.pods spec.resources.limits
        spec.environments[].name spec.environments[].branch spec.environments[].type spec.environments[].autoSync
        spec.previewEnvironments.enabled spec.previewEnvironments.ttl spec.previewEnvironments.branches.include[]
        spec.previewEnvironments.branches.exclude[] spec.previewEnvironments.pullRequests
        spec.previewEnvironments.maxActive spec.previewEnvironments.trust spec.secrets[].name
        status.conditions[].type status.latestCommit status.latestImage status.environments[].name
        status.environments[].type status.environments[].ready status.environments[].url status.queue[].position
    """,
    "Environment": """
        spec.projectRef.name spec.type spec.source.commitSha spec.source.branch spec.source.prNumber
        spec.config.envVars[].name spec.config.envVars[].value spec.config.secretRefs[].name
        spec.config.configRefs[].name spec.runtime.replicas spec.runtime.resources spec.runtime.ports[].name
        spec.runtime.autoscaling.enabled spec.runtime.autoscaling.minReplicas spec.runtime.autoscaling.maxReplicas
        spec.runtime.autoscaling.targetCPUUtilization spec.runtime.autoscaling.targetMemoryUtilization
        spec.runtime.probes spec.ingress.enabled spec.ingress.host spec.ingress.path spec.ingress.className
        spec.ingress.tls.enabled spec.ingress.tls.secretName spec.ingress.annotations spec.ttl spec.suspended
        status.phase status.url status.urls[] status.namespace.name status.namespace.uid status.image
        status.expiresAt status.observedGeneration status.conditions[].type status.failure.step
        status.failure.reason status.failure.object status.failure.message status.failure.logTail status.failure.hint
    """,
    "DomainPool": """
        spec.baseDomains[] spec.certManager.issuerRef.name spec.certManager.issuerRef.kind spec.wildcardSecretName
        spec.allocationPolicy.strategy spec.allocationPolicy.reservedSubdomains[] status.allocations[].host
        status.allocations[].project status.allocations[].environment status.allocations[].uid status.allocated
    """,
    "Registry": """
        spec.type spec.endpoint spec.auth.secretRef.name spec.auth.secretRef.namespace spec.insecure
        spec.imagePullSecret.name spec.imagePullSecret.generatePerNamespace status.verified status.lastVerified
        status.conditions[].type
    """,
    "PreviewEnvironment": """
        spec.pr_number spec.branch_name spec.image spec.image_tag spec.ttl_seconds
    """,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "Project": {
        "spec.source.branch": "main",
        "spec.build.context": ".",
        "spec.environments[].autoSync": False,
        "spec.previewEnvironments.enabled": False,
        "spec.previewEnvironments.ttl": "168h",
        "spec.previewEnvironments.pullRequests": True,
        "spec.previewEnvironments.trust": "repository",
    },
    "Environment": {
        "spec.runtime.replicas": 1,
        "spec.ingress.enabled": True,
        "spec.ingress.path": "/",
        "spec.ingress.tls.enabled": True,
    },
    "DomainPool": {
        "spec.certManager.issuerRef.kind": "ClusterIssuer",
        "spec.allocationPolicy.strategy": "round-robin",
    },
    "Registry": {"spec.imagePullSecret.generatePerNamespace": True},
}
CHOICES: dict[str, dict[str, set[str]]] = {
    "Project": {
        "spec.deployment.type": {"helm", "manifest", "kustomize", "image"},
        "spec.build.strategy": {"dockerfile", "buildpack", "none"},
        "spec.build.engine": {"buildkit", "kaniko", "kpack"},
    },
    "Environment": {
        "spec.type": {"development", "deployment"},
        "status.phase": {"Pending", "Building", "Deploying", "Ready", "Degraded", "Failed"},
    },
    "DomainPool": {"spec.allocationPolicy.strategy": {"round-robin", "random", "least-used"}},
    "Registry": {"spec.type": {"docker", "harbor", "gitlab", "ecr", "gcr", "acr"}},
}
DEFINITIONS = {each["spec"]["names"]["kind"]: each["spec"] for each in custom_resource_definitions(KINDS)}


def fields(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every field with its schema; `[]` stands for the items of a list."""
    if path:
        yield path, node
    for name, child in node.get("properties", {}).items():
        yield from fields(child, f"{path}.{name}".lstrip("."))
    if "items" in node:
        yield from fields(node["items"], f"{path}[]")


@pytest.fixture(params=sorted(KNOWN_AS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def schema(kind: str) -> dict[str, dict[str, Any]]:
    return dict(fields(DEFINITIONS[kind]["versions"][0]["schema"]["openAPIV3Schema"]))


def test_there_are_five_kinds() -> None:
    assert set(DEFINITIONS) == set(KNOWN_AS)


def test_a_kind_is_known_by_its_group_version_scope_and_short_name(kind: str) -> None:
    spec = DEFINITIONS[kind]
    (version,) = spec["versions"]
    names = spec["names"]
    (short,) = names["shortNames"]
    assert (spec["group"], version["name"], names["plural"], spec["scope"], short) == KNOWN_AS[kind]
    assert "status" in version["subresources"]


def test_a_kind_has_every_field_that_other_programs_know(
    kind: str, schema: dict[str, dict[str, Any]]
) -> None:
    assert [path for path in FIELDS[kind].split() if path not in schema] == []


def test_what_is_left_out_means_what_is_documented(kind: str, schema: dict[str, dict[str, Any]]) -> None:
    defaults = DEFAULTS.get(kind, {})
    assert {path: schema[path].get("default") for path in defaults} == defaults


def test_a_choice_has_the_documented_values(kind: str, schema: dict[str, dict[str, Any]]) -> None:
    choices = CHOICES.get(kind, {})
    assert {path: set(schema[path]["enum"]) for path in choices} == choices
