"""The application operator."""

from typing import Any

from examples.application.application import Application, operator
from tests.examples.namespaced_harness import NamespacedHarness

INGRESS = "networking.k8s.io/v1/Ingress"


async def test_an_application_waits_for_its_dependencies(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await harness.apply(Application, "shop", image="shop:1", dependencies=[{"name": "catalogue"}])
    waiting = await harness.condition(Application, "shop", "Ready", "False", "DependencyNotReady")
    assert waiting.status.phase == "Waiting"
    assert waiting.status.condition("Ready").message == "waiting for Application catalogue"
    assert await harness.get("apps/v1/Deployment", "shop") is None
    await harness.apply(Application, "catalogue", image="catalogue:1")
    ready = await harness.condition(Application, "shop", "Ready", "True")
    assert ready.status.phase == "Ready"


async def test_a_workload_can_be_depended_on(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await harness.apply(
        Application, "shop", image="shop:1", dependencies=[{"kind": "StatefulSet", "name": "database"}]
    )
    await harness.condition(Application, "shop", "Ready", "False", "DependencyNotReady")
    labels = {"app": "database"}
    stateful_set: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "database", "namespace": harness.namespace},
        "spec": {
            "serviceName": "database",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "db", "image": "postgres:17"}]},
            },
        },
    }
    await harness.client.create(stateful_set)
    await harness.condition(Application, "shop", "Ready", "True")


async def test_an_ingress_comes_and_goes_with_the_spec_and_the_url_is_in_the_status(
    harness: NamespacedHarness,
) -> None:
    await harness.run(operator)
    route = {"host": "shop.example.com", "tlsSecret": "certificate", "path": "/store"}
    await harness.apply(Application, "shop", image="shop:1", ingress=route)
    ingress = await harness.exists(INGRESS, "shop")
    assert ingress["spec"]["rules"][0]["host"] == "shop.example.com"
    assert ingress["spec"]["tls"] == [{"hosts": ["shop.example.com"], "secretName": "certificate"}]
    ready = await harness.condition(Application, "shop", "Ready", "True")
    assert ready.status.url == "https://shop.example.com/store"
    await harness.apply(Application, "shop", image="shop:1")
    await harness.gone(INGRESS, "shop")

    async def has_no_url() -> bool:
        return (await harness.get(Application, "shop")).status.url is None

    await harness.until(has_no_url, "the url is gone from the status")


async def test_environment_variables_reach_the_container(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await harness.apply(Application, "shop", image="shop:1", env={"B": "2", "A": "1"})
    deployment = await harness.exists("apps/v1/Deployment", "shop")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
