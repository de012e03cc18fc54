"""An operator on a cluster in real time, on both engines."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    AdmissionRequest,
    AdmissionResponse,
    ApiError,
    Backoff,
    ClientError,
    Context,
    LeaderElection,
    Operator,
    Requeue,
    RunningOperator,
    ValidatingWebhook,
    Webhooks,
    allow,
    deny,
)
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map


class Shop(Recorder):
    owns = ("v1/ConfigMap",)
    retry_backoff = Backoff(initial=0.1, max=2)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        self.runs.append(resource.name)
        await ctx.apply(config_map(resource.name, data={"image": resource.spec.image}))
        ctx.status.ready = resource.spec.replicas
        ctx.condition("Ready", True, reason="Made")
        return None

    async def finalize(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(f"{resource.name}-was-here"), owner=False)
        return None


@pytest.fixture
async def real(cluster: DevCluster) -> AsyncIterator[Harness]:
    """A harness in real time. Tests use their own namespace, since the real cluster is shared."""
    harness = Harness(cluster)
    await harness.install(App)
    await eventually(lambda: served(harness))
    yield harness
    await harness.close()


@pytest.fixture
async def namespace(real: Harness) -> str:
    name = f"test-{uuid.uuid4().hex[:8]}"
    await real.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


async def served(harness: Harness) -> bool:
    """Return True once the kind can be listed. Raises ClientError until then."""
    await harness.client.list(App)
    return True


async def eventually(read: Callable[[], Awaitable[Any]]) -> Any:
    """Return the first result of `read` that is true."""
    async with asyncio.timeout(40):
        while True:
            with contextlib.suppress(ClientError):
                if result := await read():
                    return result
            await asyncio.sleep(0.1)


def operator(namespace: str, **options: Any) -> Operator:
    return Operator(controllers=[Shop()], name="my-operator", namespaces=[namespace], **options)


async def test_a_resource_is_created_reconciled_and_cleaned_up(real: Harness, namespace: str) -> None:
    await real.start(operator(namespace))
    await real.apply(app("web", namespace=namespace, replicas=3))

    async def is_ready() -> Any:
        resource = await real.get(App, "web", namespace=namespace)
        return resource if resource.status.is_true("Ready") else None

    ready = await eventually(is_ready)
    assert (ready.status.ready, ready.status.observed_generation) == (3, 1)
    child = await real.get("v1/ConfigMap", "web", namespace=namespace)
    assert child["metadata"]["ownerReferences"][0]["uid"] == ready.metadata.uid
    await real.client.delete(App, "web", namespace=namespace)

    async def is_gone() -> bool:
        return await real.get(App, "web", namespace=namespace) is None

    await eventually(is_gone)
    assert await real.get("v1/ConfigMap", "web-was-here", namespace=namespace) is not None


async def drift_events(real: Harness, namespace: str) -> list[str]:
    listed = await real.client.list("events.k8s.io/v1/Event", namespace=namespace)
    return [event["note"] for event in listed.items if event["reason"] == "DriftCorrected"]


@pytest.mark.parametrize("meanwhile", ["running", "away"])
async def test_a_change_by_hand_is_reverted_and_the_event_names_the_manager(
    real: Harness, namespace: str, meanwhile: str
) -> None:
    await real.start(operator(namespace), name="first")
    await real.apply(app("web", namespace=namespace))
    await eventually(lambda: real.condition(App, "web", "Ready", namespace=namespace))
    if meanwhile == "away":
        await real.stop("first")
    patch = {"data": {"image": "evil"}}
    await real.client.patch("v1/ConfigMap", "web", patch, namespace=namespace, field_manager="kubectl-edit")
    if meanwhile == "away":
        await real.start(operator(namespace), name="second")
    notes = await eventually(lambda: drift_events(real, namespace))
    assert notes == ["ConfigMap web: kubectl-edit changed .data.image; reverted"]
    assert (await real.get("v1/ConfigMap", "web", namespace=namespace))["data"] == {"image": "nginx"}


async def test_a_lease_that_is_added_later_leaves_the_operator_the_fields_that_it_applied(
    real: Harness, namespace: str
) -> None:
    def version(data: dict[str, str], **options: Any) -> Operator:
        async def work(resource: App, ctx: Context[App]) -> None:
            await ctx.apply(config_map(resource.name, data=data))

        return Operator(
            controllers=[Recorder(work, owns=("v1/ConfigMap",))], namespaces=[namespace], **options
        )

    async def data_is(expected: dict[str, str]) -> bool:
        child = await real.get("v1/ConfigMap", "web", namespace=namespace)
        return child is not None and child["data"] == expected

    await real.start(version({"kept": "1", "dropped": "1"}), name="first")
    await real.apply(app("web", namespace=namespace))
    await eventually(lambda: data_is({"kept": "1", "dropped": "1"}))
    await real.stop("first")
    election = LeaderElection(name="added-later", namespace=namespace)
    await real.start(version({"kept": "1"}, leader_election=election), name="second")
    await eventually(lambda: data_is({"kept": "1"}))


async def test_a_converged_operator_restarts_without_a_write(real: Harness, namespace: str) -> None:
    await real.start(operator(namespace), name="first")
    await real.apply(app("web", namespace=namespace))
    await eventually(lambda: real.condition(App, "web", "Ready", namespace=namespace))
    await real.stop("first")
    again = operator(namespace)
    await real.start(again, name="second")
    controller: Any = again.controllers[0]

    async def has_run() -> bool:
        return bool(controller.runs)

    await eventually(has_run)
    await asyncio.sleep(0.5)
    assert [str(call) for call in real.writes("second")] == []


async def test_the_lease_passes_from_one_replica_to_the_other(real: Harness, namespace: str) -> None:
    election = LeaderElection(
        name="lock", namespace=namespace, lease_duration=4, renew_deadline=3, retry_period=0.5
    )
    first = await real.start(operator(namespace, leader_election=election), name="first")

    def leads(run: RunningOperator) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return run.elector is not None and run.elector.is_leader

        return look

    await eventually(leads(first))
    second = await real.start(operator(namespace, leader_election=election), name="second")
    await asyncio.sleep(1)
    assert not await leads(second)()
    await real.stop("first")
    await eventually(leads(second))
    lease = await real.get("coordination.k8s.io/v1/Lease", "lock", namespace=namespace)
    assert lease["spec"]["holderIdentity"] == second.identity
    assert lease["spec"]["leaseTransitions"] == 1


class AtMostFive(ValidatingWebhook[App]):
    async def validate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
        if request.object.spec.replicas > 5:
            return deny(f"spec.replicas: at most 5, not {request.object.spec.replicas}")
        return allow()


async def test_an_operator_serves_and_registers_its_webhooks_itself(
    real: Harness, namespace: str, unused_tcp_port: int
) -> None:
    served = Webhooks(
        AtMostFive(), host="127.0.0.1", port=unused_tcp_port, url=f"https://127.0.0.1:{unused_tcp_port}"
    )
    with_webhooks = operator(
        namespace, webhooks=served, metrics_port=None, health_port=None, leader_election="webhook-lock"
    )
    client = real.connect("operator")
    try:
        async with with_webhooks.running(client) as run:

            async def is_denied() -> bool:
                try:
                    await real.client.create(app("big", namespace=namespace, replicas=6), dry_run=True)
                except ApiError as error:
                    return "spec.replicas: at most 5, not 6" in str(error)
                return False

            await eventually(is_denied)
            await real.apply(app("small", namespace=namespace, replicas=5))
            ready, report = run.health.report(run.health.ready)
            assert ready
            assert f"[+] webhooks: served on port {unused_tcp_port}" in report
            assert 'outcome="denied"' in run.metrics.render().decode()
    finally:
        kind = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
        await real.client.delete(kind, "my-operator", missing_ok=True)
        await client.close()
