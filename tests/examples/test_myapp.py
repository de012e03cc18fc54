"""The operator of the quick start."""

from examples.myapp.myapp import MyApp, operator
from tests.examples.namespaced_harness import NamespacedHarness


async def test_an_app_gets_a_deployment_and_a_service_and_becomes_ready(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await harness.apply(MyApp, "web", image="nginx:1.29", replicas=2, port=8080)
    app = await harness.condition(MyApp, "web", "Ready", "True", "AllReplicasReady")
    assert (app.status.phase, app.status.ready_replicas) == ("Running", 2)
    assert app.status.observed_generation == app.metadata.generation
    deployment = await harness.get("apps/v1/Deployment", "web")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (deployment["spec"]["replicas"], container["image"]) == (2, "nginx:1.29")
    service = await harness.get("v1/Service", "web")
    assert service["spec"]["ports"][0]["port"] == 8080
    assert service["metadata"]["ownerReferences"][0]["uid"] == app.metadata.uid


async def test_a_changed_app_changes_its_deployment(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await harness.apply(MyApp, "web", image="nginx:1.29")
    await harness.condition(MyApp, "web", "Ready", "True")
    await harness.apply(MyApp, "web", image="nginx:1.30", replicas=3)

    async def all_three_are_ready() -> bool:
        app = await harness.get(MyApp, "web")
        return bool(app.status.ready_replicas == 3 and app.status.observed_generation == 2)

    await harness.until(all_three_are_ready, "three replicas are ready")
    deployment = await harness.get("apps/v1/Deployment", "web")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1.30"


async def test_a_deployment_changed_by_hand_is_reverted_and_an_event_names_the_field_manager(
    harness: NamespacedHarness,
) -> None:
    await harness.run(operator)
    await harness.apply(MyApp, "web", image="nginx:1.29")
    await harness.condition(MyApp, "web", "Ready", "True")
    await harness.client.patch(
        "apps/v1/Deployment",
        "web",
        {"spec": {"replicas": 5}},
        namespace=harness.namespace,
        field_manager="somebody",
    )

    async def is_reverted() -> bool:
        deployment = await harness.get("apps/v1/Deployment", "web")
        return bool(deployment["spec"]["replicas"] == 1)

    await harness.until(is_reverted, "the replicas are reverted")

    async def reported() -> bool:
        events = await harness.inner.events(reason="DriftCorrected", name="web")
        return any("somebody changed .spec.replicas" in event["note"] for event in events)

    await harness.until(reported, "an event names the field manager")


async def test_deleting_an_app_deletes_what_it_owns(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await harness.apply(MyApp, "web", image="nginx:1.29")
    await harness.condition(MyApp, "web", "Ready", "True")
    await harness.client.delete(MyApp, "web", namespace=harness.namespace)
    await harness.gone("apps/v1/Deployment", "web")
    await harness.gone("v1/Service", "web")


async def test_a_converged_operator_writes_nothing(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await harness.apply(MyApp, "web", image="nginx:1.29")
    await harness.condition(MyApp, "web", "Ready", "True")
    await harness.at_rest()
    await harness.inner.stop()
    written = len(harness.inner.writes())
    await harness.inner.start(operator, namespaces=[harness.namespace])
    await harness.inner.clock.sleep(5)
    assert harness.inner.writes()[written:] == []
