"""The generated objects of a project that is a single image."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import RenderFailed
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.devcluster import DevCluster
from kapsa.environments.render.filter import FilterRules, filter_objects
from kapsa.environments.render.inputs import Injected
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.resources import (
    Autoscaling,
    EnvironmentRuntime,
    EnvVar,
    Port,
    Probe,
    Probes,
    ResourceRequirements,
    ServiceTarget,
)
from kapsa.runtime import Client, Quantity

IMAGE = ImageReference.parse("registry.example.com/team/app:v1@sha256:" + "a" * 64)


def render(
    renderer: Renderer, runtime: EnvironmentRuntime | None = None, **more: Any
) -> dict[str, dict[str, Any]]:
    injected = Injected(
        release="app", namespace="x", **{"image": IMAGE, "runtime": runtime or EnvironmentRuntime(), **more}
    )
    return {each["kind"]: each for each in renderer.render_image(injected).objects}


def container(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_an_image_becomes_a_deployment_and_a_service_that_match(renderer: Renderer) -> None:
    objects = render(renderer)
    deployment, service = objects["Deployment"], objects["Service"]
    assert list(objects) == ["Deployment", "Service"]
    assert container(objects)["image"] == IMAGE.pinned
    assert deployment["spec"]["replicas"] == 1
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    assert container(objects)["ports"][0]["containerPort"] == 8080
    assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_variables_resources_ports_and_probes_are_those_of_the_environment(renderer: Renderer) -> None:
    runtime = EnvironmentRuntime(
        replicas=3,
        resources=ResourceRequirements(limits={"memory": Quantity("256Mi")}),
        ports=(Port(container_port=3000), Port(name="admin", container_port=3001, service_port=81)),
        probes=Probes(readiness=Probe(path="/ready"), liveness=Probe(path="/alive", port=3001)),
    )
    objects = render(
        renderer, runtime, variables=(EnvVar(name="A", value="1"),), env_from=[{"secretRef": {"name": "db"}}]
    )
    made = container(objects)
    assert objects["Deployment"]["spec"]["replicas"] == 3
    assert made["env"] == [{"name": "A", "value": "1"}]
    assert made["envFrom"] == [{"secretRef": {"name": "db"}}]
    assert made["resources"] == {"limits": {"memory": "256Mi"}}
    assert made["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    assert made["livenessProbe"]["httpGet"] == {"path": "/alive", "port": 3001}
    assert "startupProbe" not in made
    assert [(each["port"], each["targetPort"]) for each in objects["Service"]["spec"]["ports"]] == [
        (80, "http"),
        (81, "admin"),
    ]


def test_an_autoscaler_decides_the_replicas_alone(renderer: Renderer) -> None:
    scaling = Autoscaling(enabled=True, min_replicas=2, max_replicas=5, target_memory_utilization=70)
    objects = render(renderer, EnvironmentRuntime(autoscaling=scaling))
    assert "replicas" not in objects["Deployment"]["spec"]
    spec = objects["HorizontalPodAutoscaler"]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 5)
    assert [each["resource"]["name"] for each in spec["metrics"]] == ["memory"]


def test_a_service_has_the_configured_name(renderer: Renderer) -> None:
    service = render(renderer, service=ServiceTarget(name="front", port=8000))["Service"]
    assert service["metadata"]["name"] == "front"
    assert service["spec"]["ports"][0]["port"] == 8000


def test_two_ports_behind_one_service_port_are_refused(renderer: Renderer) -> None:
    runtime = EnvironmentRuntime(ports=(Port(container_port=1), Port(name="b", container_port=2)))
    with pytest.raises(RenderFailed, match="service port 80"):
        render(renderer, runtime)


def test_without_an_image_there_is_nothing_to_run(renderer: Renderer) -> None:
    with pytest.raises(RenderFailed, match="no image to run") as error:
        render(renderer, image=None)
    assert "imageRepository" in error.value.hint


def test_it_meets_the_restricted_standard_if_required(renderer: Renderer) -> None:
    made = render(renderer, restricted=True)
    assert filter_objects(list(made.values()), FilterRules(namespace="x", pod_security="restricted"))


async def test_a_cluster_accepts_it_under_strict_validation(renderer: Renderer, cluster: DevCluster) -> None:
    probe = Probe(path="/", port=8080)
    runtime = EnvironmentRuntime(
        ports=(
            Port(container_port=8080),
            Port(name="dns", container_port=53, service_port=53, protocol="UDP"),
        ),
        autoscaling=Autoscaling(enabled=True),
        probes=Probes(readiness=probe, liveness=probe, startup=probe),
        resources=ResourceRequirements(requests={"cpu": Quantity("100m")}),
    )
    objects = render(renderer, runtime, restricted=True, variables=(EnvVar(name="A", value="1"),))
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        for each in objects.values():
            each["metadata"]["namespace"] = "default"
            await client.apply(each, field_manager="test", field_validation="Strict", dry_run=True)
