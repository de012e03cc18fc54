"""The application operator."""

from typing import Any

from examples.application.application import Application, operator
from tests.examples.world import World

INGRESS = "networking.k8s.io/v1/Ingress"


async def test_an_application_waits_for_what_it_depends_on(world: World) -> None:
    await world.run(operator)
    await world.apply(Application, "shop", image="shop:1", dependencies=[{"name": "catalogue"}])
    waiting = await world.condition(Application, "shop", "Ready", "False", "DependencyNotReady")
    assert waiting.status.phase == "Waiting"
    assert waiting.status.condition("Ready").message == "waiting for Application catalogue"
    assert await world.get("apps/v1/Deployment", "shop") is None
    await world.apply(Application, "catalogue", image="catalogue:1")
    ready = await world.condition(Application, "shop", "Ready", "True")
    assert ready.status.phase == "Ready"


async def test_a_workload_can_be_depended_on(world: World) -> None:
    await world.run(operator)
    await world.apply(
        Application, "shop", image="shop:1", dependencies=[{"kind": "StatefulSet", "name": "database"}]
    )
    await world.condition(Application, "shop", "Ready", "False", "DependencyNotReady")
    labels = {"app": "database"}
    stateful_set: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "database", "namespace": world.namespace},
        "spec": {
            "serviceName": "database",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "db", "image": "postgres:17"}]},
            },
        },
    }
    await world.client.create(stateful_set)
    await world.condition(Application, "shop", "Ready", "True")


async def test_an_ingress_comes_and_goes_with_the_spec_and_the_url_is_in_the_status(world: World) -> None:
    await world.run(operator)
    route = {"host": "shop.example.com", "tlsSecret": "certificate", "path": "/store"}
    await world.apply(Application, "shop", image="shop:1", ingress=route)
    ingress = await world.exists(INGRESS, "shop")
    assert ingress["spec"]["rules"][0]["host"] == "shop.example.com"
    assert ingress["spec"]["tls"] == [{"hosts": ["shop.example.com"], "secretName": "certificate"}]
    ready = await world.condition(Application, "shop", "Ready", "True")
    assert ready.status.url == "https://shop.example.com/store"
    await world.apply(Application, "shop", image="shop:1")
    await world.gone(INGRESS, "shop")

    async def has_no_url() -> bool:
        return (await world.get(Application, "shop")).status.url is None

    await world.until(has_no_url, "the url is gone from the status")


async def test_environment_variables_reach_the_container(world: World) -> None:
    await world.run(operator)
    await world.apply(Application, "shop", image="shop:1", env={"B": "2", "A": "1"})
    deployment = await world.exists("apps/v1/Deployment", "shop")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
