"""The apply step: objects are applied and pruned, and the ApplySet names their owner."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import Refused
from tests.environments.fakes import deployment, service
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

CONFIG_MAP, SECRET = "v1/ConfigMap", "v1/Secret"
PARENT = "kapsa-applyset"


@pytest.fixture
def tenant(sandbox: Sandbox) -> Tenant:
    return Tenant(sandbox)


def holder(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


async def test_an_apply_set_has_a_parent_that_names_its_members_kinds(tenant: Tenant) -> None:
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    parent = await tenant.client.get(CONFIG_MAP, PARENT, namespace=tenant.namespace_of("one"))
    metadata = parent["metadata"]
    assert metadata["annotations"]["applyset.kubernetes.io/contains-group-kinds"] == "Deployment.apps,Service"
    assert metadata["annotations"]["applyset.kubernetes.io/tooling"] == "kapsa/v1"
    identity = metadata["labels"]["applyset.kubernetes.io/id"]
    web = await tenant.client.get("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one"))
    assert web["metadata"]["labels"]["applyset.kubernetes.io/part-of"] == identity


async def test_what_somebody_should_know_of_the_objects_stands_in_the_condition(tenant: Tenant) -> None:
    tenant.systems.renderer.warnings = ("Job migrate is a Helm hook, which is not run",)
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    condition = (await tenant.ready()).status.condition("DeploymentReady")
    assert condition is not None
    assert condition.message == "2 objects are healthy; Job migrate is a Helm hook, which is not run"


async def test_what_is_no_longer_rendered_is_pruned_and_nothing_else(tenant: Tenant) -> None:
    namespace, rendered = tenant.namespace_of("one"), tenant.systems.renderer
    rendered.objects = [
        deployment("web", "app:1"),
        service("web"),
        holder("ConfigMap", "old", data={"a": "b"}),
        holder("Secret", "old", stringData={"a": "b"}),
    ]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.client.create(
        {**holder("ConfigMap", "by-hand"), "metadata": {"name": "by-hand", "namespace": namespace}}
    )
    rendered.objects = [deployment("web", "app:2"), service("web"), holder("Secret", "new")]
    await tenant.environment(commit="two")
    await tenant.sandbox.gone(CONFIG_MAP, "old", namespace=namespace)
    await tenant.sandbox.gone(SECRET, "old", namespace=namespace)
    await tenant.ready()
    assert await tenant.sandbox.get(SECRET, "new", namespace=namespace)
    assert await tenant.sandbox.get(CONFIG_MAP, "by-hand", namespace=namespace)

    async def lists_what_is_left() -> bool:
        parent = await tenant.client.get(CONFIG_MAP, PARENT, namespace=namespace)
        kinds = parent["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"]
        return bool(kinds == "Deployment.apps,Secret,Service")

    await tenant.sandbox.until(lists_what_is_left, "the parent names the kinds that are left")


async def test_nothing_is_pruned_while_the_new_version_can_not_be_rendered(tenant: Tenant) -> None:
    namespace = tenant.namespace_of("one")
    tenant.systems.renderer.objects = [
        deployment("web", "app:1"),
        service("web"),
        holder("ConfigMap", "kept"),
    ]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    tenant.systems.renderer.error = Refused("the chart is broken", reason="RenderFailed")
    await tenant.environment(commit="two")
    await tenant.reaches("one", "DeploymentReady", "False", "RenderFailed")
    assert await tenant.sandbox.get(CONFIG_MAP, "kept", namespace=namespace)
    assert await tenant.sandbox.get("apps/v1/Deployment", "web", namespace=namespace)


async def test_an_environment_with_all_kinds_of_objects_causes_no_write_once_it_is_ready(
    tenant: Tenant,
) -> None:
    tenant.systems.renderer.objects = [
        deployment("web", "app:1"),
        service("web"),
        holder("ConfigMap", "settings", data={"a": "b"}),
        holder("Secret", "login", stringData={"password": "x"}, type="Opaque"),
        holder("ServiceAccount", "runner"),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        },
    ]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.at_rest()
    before = len(tenant.sandbox.writes())
    annotations = {"metadata": {"annotations": {"example.com/touched": "1"}}}
    await tenant.client.patch(
        "catalyst.catalyst.dev/v1alpha1/Environment", "one", annotations, namespace=tenant.home
    )
    await tenant.sandbox.at_rest()
    assert [str(call) for call in tenant.sandbox.writes()[before:]] == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", PARENT),
        ("Secret", "kapsa-tls"),
        ("ServiceAccount", "default"),
    ],
)
async def test_a_name_that_the_operator_or_kubernetes_needs_is_refused(
    tenant: Tenant, kind: str, name: str
) -> None:
    tenant.systems.renderer.objects = [deployment("web", "app:1"), service("web"), holder(kind, name)]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    refused = await tenant.reaches("one", "DeploymentReady", "False", "ObjectRefused")
    assert refused.status.failure is not None
    assert refused.status.failure.object == f"{kind} {name}"


async def test_an_object_of_the_name_of_a_copied_secret_is_refused(tenant: Tenant) -> None:
    await tenant.client.create(
        holder("Secret", "settings", stringData={"KEY": "value"}), namespace=tenant.name
    )
    tenant.systems.renderer.objects = [
        deployment("web", "app:1"),
        service("web"),
        holder("Secret", "settings", stringData={"KEY": "forged"}),
    ]
    await tenant.start()
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment()
    refused = await tenant.reaches("one", "DeploymentReady", "False", "ObjectRefused")
    assert refused.status.failure is not None
    assert refused.status.failure.object == "Secret settings"


@pytest.mark.parametrize("kind", ["manifest", "helm", "kustomize"])
@pytest.mark.parametrize(
    ("runtime", "warned"), [({}, False), ({"replicas": 3}, True)], ids=["none", "replicas"]
)
async def test_runtime_settings_that_a_type_of_deployment_does_not_use_are_warned_about(
    tenant: Tenant, runtime: dict[str, Any], warned: bool, kind: str
) -> None:
    await tenant.start()
    await tenant.project(deployment={"type": kind, "path": "deploy"})
    await tenant.environment(runtime=runtime)
    deployed = (await tenant.ready()).status.condition("DeploymentReady")
    assert deployed is not None
    warning = f"runtime of the Environment is not used: deployment.type is {kind}"
    assert (warning in deployed.message) == warned
