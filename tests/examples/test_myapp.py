"""The quick start's operator."""

from examples.myapp.myapp import MyApp, operator
from tests.examples.world import World


async def test_an_app_gets_a_deployment_and_a_service_and_becomes_ready(world: World) -> None:
    await world.run(operator)
    await world.apply(MyApp, "web", image="nginx:1.29", replicas=2, port=8080)
    app = await world.condition(MyApp, "web", "Ready", "True", "AllReplicasReady")
    assert (app.status.phase, app.status.ready_replicas) == ("Running", 2)
    assert app.status.observed_generation == app.metadata.generation
    deployment = await world.get("apps/v1/Deployment", "web")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (deployment["spec"]["replicas"], container["image"]) == (2, "nginx:1.29")
    service = await world.get("v1/Service", "web")
    assert service["spec"]["ports"][0]["port"] == 8080
    assert service["metadata"]["ownerReferences"][0]["uid"] == app.metadata.uid


async def test_a_changed_app_changes_its_deployment(world: World) -> None:
    await world.run(operator)
    await world.apply(MyApp, "web", image="nginx:1.29")
    await world.condition(MyApp, "web", "Ready", "True")
    await world.apply(MyApp, "web", image="nginx:1.30", replicas=3)

    async def all_three_are_ready() -> bool:
        app = await world.get(MyApp, "web")
        return bool(app.status.ready_replicas == 3 and app.status.observed_generation == 2)

    await world.until(all_three_are_ready, "three replicas are ready")
    deployment = await world.get("apps/v1/Deployment", "web")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1.30"


async def test_a_deployment_changed_by_hand_is_put_back_and_the_event_names_who_did_it(world: World) -> None:
    await world.run(operator)
    await world.apply(MyApp, "web", image="nginx:1.29")
    await world.condition(MyApp, "web", "Ready", "True")
    await world.client.patch(
        "apps/v1/Deployment",
        "web",
        {"spec": {"replicas": 5}},
        namespace=world.namespace,
        field_manager="somebody",
    )

    async def put_back() -> bool:
        deployment = await world.get("apps/v1/Deployment", "web")
        return bool(deployment["spec"]["replicas"] == 1)

    await world.until(put_back, "the replicas are put back")

    async def reported() -> bool:
        events = await world.harness.events(reason="DriftCorrected", name="web")
        return any("somebody changed .spec.replicas" in event["note"] for event in events)

    await world.until(reported, "an event names somebody")


async def test_deleting_an_app_deletes_what_it_owns(world: World) -> None:
    await world.run(operator)
    await world.apply(MyApp, "web", image="nginx:1.29")
    await world.condition(MyApp, "web", "Ready", "True")
    await world.client.delete(MyApp, "web", namespace=world.namespace)
    await world.gone("apps/v1/Deployment", "web")
    await world.gone("v1/Service", "web")


async def test_a_converged_operator_writes_nothing(world: World) -> None:
    await world.run(operator)
    await world.apply(MyApp, "web", image="nginx:1.29")
    await world.condition(MyApp, "web", "Ready", "True")
    await world.at_rest()
    await world.harness.stop()
    written = len(world.harness.writes())
    await world.harness.start(operator, namespaces=[world.namespace])
    await world.harness.clock.sleep(5)
    assert world.harness.writes()[written:] == []
