"""What is rendered is applied, what no longer is goes, and other tools can see whose it is."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import Refused
from tests.environments.outside_world import deployment, service
from tests.environments.stage import Stage
from tests.environments.team import Team

CONFIG_MAP, SECRET = "v1/ConfigMap", "v1/Secret"
PARENT = "kapsa-applyset"


@pytest.fixture
def team(stage: Stage) -> Team:
    return Team(stage)


def holder(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


async def test_an_apply_set_has_a_parent_that_names_its_members_kinds(team: Team) -> None:
    await team.start()
    await team.project()
    await team.environment()
    await team.ready()
    parent = await team.client.get(CONFIG_MAP, PARENT, namespace=team.place("one"))
    metadata = parent["metadata"]
    assert metadata["annotations"]["applyset.kubernetes.io/contains-group-kinds"] == "Deployment.apps,Service"
    assert metadata["annotations"]["applyset.kubernetes.io/tooling"] == "kapsa/v1"
    identity = metadata["labels"]["applyset.kubernetes.io/id"]
    web = await team.client.get("apps/v1/Deployment", "web", namespace=team.place("one"))
    assert web["metadata"]["labels"]["applyset.kubernetes.io/part-of"] == identity


async def test_what_somebody_should_know_of_the_objects_stands_in_the_condition(team: Team) -> None:
    team.outside.renderer.warnings = ("Job migrate is a Helm hook, which is not run",)
    await team.start()
    await team.project()
    await team.environment()
    condition = (await team.ready()).status.condition("DeploymentReady")
    assert condition is not None
    assert condition.message == "2 objects are healthy; Job migrate is a Helm hook, which is not run"


async def test_what_is_no_longer_rendered_is_pruned_and_nothing_else(team: Team) -> None:
    place, rendered = team.place("one"), team.outside.renderer
    rendered.objects = [
        deployment("web", "app:1"),
        service("web"),
        holder("ConfigMap", "old", data={"a": "b"}),
        holder("Secret", "old", stringData={"a": "b"}),
    ]
    await team.start()
    await team.project()
    await team.environment()
    await team.ready()
    await team.client.create(
        {**holder("ConfigMap", "by-hand"), "metadata": {"name": "by-hand", "namespace": place}}
    )
    rendered.objects = [deployment("web", "app:2"), service("web"), holder("Secret", "new")]
    await team.environment(commit="two")
    await team.stage.gone(CONFIG_MAP, "old", namespace=place)
    await team.stage.gone(SECRET, "old", namespace=place)
    await team.ready()
    assert await team.stage.get(SECRET, "new", namespace=place)
    assert await team.stage.get(CONFIG_MAP, "by-hand", namespace=place)

    async def tells_what_is_left() -> bool:
        parent = await team.client.get(CONFIG_MAP, PARENT, namespace=place)
        told = parent["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"]
        return bool(told == "Deployment.apps,Secret,Service")

    await team.stage.until(tells_what_is_left, "the parent names the kinds that are left")


async def test_nothing_is_pruned_while_the_new_version_can_not_be_rendered(team: Team) -> None:
    place = team.place("one")
    team.outside.renderer.objects = [deployment("web", "app:1"), service("web"), holder("ConfigMap", "kept")]
    await team.start()
    await team.project()
    await team.environment()
    await team.ready()
    team.outside.renderer.error = Refused("the chart is broken", reason="RenderFailed")
    await team.environment(commit="two")
    await team.reaches("one", "DeploymentReady", "False", "RenderFailed")
    assert await team.stage.get(CONFIG_MAP, "kept", namespace=place)
    assert await team.stage.get("apps/v1/Deployment", "web", namespace=place)


async def test_an_environment_with_all_kinds_of_objects_causes_no_write_once_it_is_ready(team: Team) -> None:
    team.outside.renderer.objects = [
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
    await team.start()
    await team.project()
    await team.environment()
    await team.ready()
    await team.stage.at_rest()
    before = len(team.stage.writes())
    annotations = {"metadata": {"annotations": {"example.com/touched": "1"}}}
    await team.client.patch(
        "catalyst.catalyst.dev/v1alpha1/Environment", "one", annotations, namespace=team.home
    )
    await team.stage.at_rest()
    assert [str(call) for call in team.stage.writes()[before:]] == []


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
    team: Team, kind: str, name: str
) -> None:
    team.outside.renderer.objects = [deployment("web", "app:1"), service("web"), holder(kind, name)]
    await team.start()
    await team.project()
    await team.environment()
    found = await team.reaches("one", "DeploymentReady", "False", "ObjectRefused")
    assert found.status.failure is not None
    assert found.status.failure.object == f"{kind} {name}"


async def test_an_object_of_the_name_of_a_copied_secret_is_refused(team: Team) -> None:
    await team.client.create(holder("Secret", "settings", stringData={"KEY": "value"}), namespace=team.name)
    team.outside.renderer.objects = [
        deployment("web", "app:1"),
        service("web"),
        holder("Secret", "settings", stringData={"KEY": "forged"}),
    ]
    await team.start()
    await team.project(secrets=[{"name": "settings"}])
    await team.environment()
    found = await team.reaches("one", "DeploymentReady", "False", "ObjectRefused")
    assert found.status.failure is not None
    assert found.status.failure.object == "Secret settings"
