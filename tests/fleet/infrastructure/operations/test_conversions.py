"""A conversion webhook that a chart brings: what it has stored can be read after it is gone, and keeps its content."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.leases import LeaseLost
from kapsa.runtime import ApiError
from tests.eventually import eventually
from tests.fleet.infrastructure.health.webhook_server import WebhookServer, webhook_server
from tests.fleet.infrastructure.operations.harness import (
    CLUSTER,
    LimitedLease,
    Operations,
    lease,
)
from tests.fleet.served_kinds import served

Manifest = dict[str, Any]
WIDGETS = 12
NEW = "sha256:2"
WEBHOOKS = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"


async def specs(operations: Operations, version: str) -> dict[str, Manifest]:
    """Return the spec of each widget, as a version shows it."""
    listed = (await operations.client.list(f"{operations.group}/{version}/Widget")).items
    assert {each["apiVersion"] for each in listed} == {f"{operations.group}/{version}"}
    return {each["metadata"]["name"]: each.get("spec") or {} for each in listed}


async def bring_conversion(operations: Operations, server: WebhookServer, folder: str = "crds") -> None:
    """Bring a cluster from v1 to a chart whose v2 has another name for a field, and let its controller store some."""
    server.renames = {"size": "amount"}
    first = operations.crd(operations.version("v1", storage=True))
    await operations.apply(operations.chart("sha256:1", first))
    await operations.create_widgets(WIDGETS, "v1")
    both = (operations.version("v1"), operations.version("v2", storage=True, fields=("amount",)))
    second = operations.crd(*both, conversion=server.conversion())
    operations.charts[NEW] = [ChartCrd(operations.crd_name, folder, second)]
    await operations.apply(NEW, *([second] if folder == "templates" else []))
    kind = f"{operations.group}/v2/Widget"
    await eventually(lambda: served(operations.client, kind), bool, "v2 to be served")
    await eventually(
        lambda: specs(operations, "v2"), lambda seen: seen["w001"] == {"amount": 1}, "conversions"
    )
    for number in range(6):
        patch = {"spec": {"amount": 100 + number}}
        await operations.client.patch(kind, f"w{number:03}", patch, namespace="default")
    body = {
        "apiVersion": f"{operations.group}/v2",
        "kind": "Widget",
        "metadata": {"name": "w900", "namespace": "default"},
        "spec": {"amount": 900},
    }
    await operations.client.create(body)


def expected_sizes() -> dict[str, Manifest]:
    sizes = {f"w{number:03}": {"size": number + (100 if number < 6 else 0)} for number in range(WIDGETS)}
    return {**sizes, "w900": {"size": 900}}


async def assert_returned(operations: Operations) -> None:
    """Assert that every resource is stored in v1 with its content, and can be read in both versions."""
    live = await operations.live_crd()
    assert (live["status"]["storedVersions"], live["spec"]["conversion"]) == (["v1"], {"strategy": "None"})
    assert [each["name"] for each in live["spec"]["versions"] if each["storage"]] == ["v1"]
    await eventually(
        lambda: specs(operations, "v1"), lambda seen: seen == expected_sizes(), "the content of v1"
    )
    assert (await specs(operations, "v2")).keys() == expected_sizes().keys()


@pytest.mark.parametrize("folder", ["crds", "templates"])
async def test_resources_that_a_conversion_webhook_has_stored_keep_their_content_when_it_goes(
    operations: Operations, folder: str
) -> None:
    async with webhook_server() as server:
        await bring_conversion(operations, server, folder)
        assert await specs(operations, "v1") == expected_sizes()
        assert await operations.revert(NEW) == ()
    await assert_returned(operations)
    assert await operations.revert(NEW) == ()


async def test_resources_are_converted_back_by_a_process_that_goes_on_where_another_died(
    operations: Operations,
) -> None:
    async with webhook_server() as server:
        await bring_conversion(operations, server)
        with pytest.raises(LeaseLost):
            # The storage flag, and a few of the resources.
            await operations.under_test.return_storage(
                CLUSTER, operations.deployment_of(NEW), LimitedLease(1 + 4)
            )
        live = await operations.live_crd()
        assert (live["status"]["storedVersions"], live["spec"]["conversion"]["strategy"]) == (
            ["v1", "v2"],
            "Webhook",
        )
        # Blue-green converts before the controller stops, and takes the CRDs back when it is gone.
        assert (
            await operations.under_test.return_storage(CLUSTER, operations.deployment_of(NEW), lease()) == ()
        )
    assert await operations.revert(NEW) == ()
    await assert_returned(operations)


async def test_a_conversion_that_is_broken_keeps_no_version_in_place_and_is_reported(
    operations: Operations,
) -> None:
    async with webhook_server() as server:
        await bring_conversion(operations, server)
        server.converts = False
        (left_behind,) = await operations.revert(NEW)
    assert (
        f"resources of {operations.crd_name} are stored in a version that cannot be converted to v1"
        in left_behind
    )
    # A process that died after this, before it stored the answer, gets it from the next attempt.
    assert await operations.revert(NEW) == (left_behind,)
    assert (await operations.live_crd())["spec"]["conversion"] == {"strategy": "None"}
    for version in ("v1", "v2"):
        seen = await eventually(lambda v=version: readable(operations, v), bool, f"{version} to be readable")
        assert seen.keys() == expected_sizes().keys()
    assert (await specs(operations, "v1"))["w007"] == {"size": 7}


async def readable(operations: Operations, version: str) -> dict[str, Manifest]:
    try:
        return await specs(operations, version)
    except ApiError:
        return {}


async def test_the_rollback_of_a_chart_that_is_deployed_again_keeps_the_conversion_of_its_first_deployment(
    operations: Operations,
) -> None:
    async with webhook_server() as server:
        await bring_conversion(operations, server)
        before = await operations.live_crd()
        await operations.apply(NEW, deployment="again", base=NEW)
        assert await operations.revert("again") == ()
        live = await operations.live_crd()
        assert live["spec"] == before["spec"]
        assert await specs(operations, "v1") == expected_sizes()
        # The first deployment can still be rolled back.
        assert await operations.revert(NEW) == ()
    await assert_returned(operations)


async def test_a_deployment_after_one_that_ended_before_helm_returns_to_the_chart_that_helm_has(
    operations: Operations,
) -> None:
    async with webhook_server() as server:
        await bring_conversion(operations, server)
        await operations.apply(NEW, deployment="again", base="sha256:1")
        assert await operations.revert("again") == ()
    await assert_returned(operations)


async def test_a_conversion_that_an_aborted_install_has_left_ends_with_the_rollback_of_the_next_install(
    operations: Operations,
) -> None:
    async with webhook_server() as server:
        both = (operations.version("v1"), operations.version("v2", storage=True))
        operations.chart(NEW, operations.crd(*both, conversion=server.conversion()))
        await operations.apply(NEW, deployment="aborted", base=None)
        await operations.apply(NEW, deployment="again", base=None)
        assert await operations.revert("again") == ()
    assert (await operations.live_crd())["spec"]["conversion"] == {"strategy": "None"}


async def test_two_rollbacks_in_a_row_keep_the_content_of_what_the_first_chart_had_stored(
    operations: Operations,
) -> None:
    async with webhook_server() as server:
        await bring_conversion(operations, server)
        both = (operations.version("v1"), operations.version("v2", storage=True, fields=("amount", "more")))
        third = operations.chart("sha256:3", operations.crd(*both, conversion=server.conversion()))
        await operations.apply(third, base=NEW)
        assert await operations.revert(third) == ()
        assert (await operations.live_crd())["spec"]["conversion"]["strategy"] == "Webhook"
        assert await operations.revert(NEW) == ()
    await assert_returned(operations)


async def test_a_conversion_that_fails_for_a_while_is_tried_again_until_every_resource_is_converted(
    operations: Operations,
) -> None:
    patient = Operations(operations.client, settle_seconds=operations.settle_seconds, patience_seconds=300.0)
    async with webhook_server() as server:
        await bring_conversion(patient, server)
        server.failures = 3
        assert await patient.revert(NEW) == ()
        assert server.failures == 0
    await assert_returned(patient)


async def test_an_admission_webhook_that_is_broken_does_not_keep_the_chart_that_brought_it_in_place(
    operations: Operations,
) -> None:
    async with webhook_server() as server:
        await bring_conversion(operations, server)
        broken = server.configuration(failurePolicy="Fail", operations=["UPDATE"])
        broken["metadata"]["name"] = operations.group
        (webhook,) = broken["webhooks"]
        webhook["rules"][0]["apiGroups"] = [operations.group]
        webhook["clientConfig"]["url"] = "https://127.0.0.1:1/validate"
        await operations.client.create(broken)
        try:
            await eventually(lambda: refused(operations), bool, "the webhook to be called")
            (left_behind,) = await operations.revert(NEW)
        finally:
            await operations.client.delete(WEBHOOKS, operations.group)
    assert f" or more resources of {operations.crd_name} are stored" in left_behind
    assert "failed calling webhook" in left_behind
    assert (await operations.live_crd())["spec"]["conversion"] == {"strategy": "None"}


async def refused(operations: Operations) -> bool:
    patch = {"metadata": {"annotations": {"probe": "x"}}}
    kind = f"{operations.group}/v2/Widget"
    try:
        await operations.client.patch(kind, "w001", patch, namespace="default", dry_run=True)
    except ApiError:
        return True
    return False


async def test_a_deployment_after_a_rollback_reports_nothing_that_the_rollback_has_left_behind(
    operations: Operations,
) -> None:
    async with webhook_server() as server:
        await bring_conversion(operations, server)
        server.converts = False
        assert await operations.revert(NEW) != ()
        server.converts = True
        await operations.apply(NEW, deployment="again", base="sha256:1")
        assert await operations.revert("again") == ()
        assert await operations.revert(NEW) == ()
