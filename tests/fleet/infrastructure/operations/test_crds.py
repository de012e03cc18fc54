"""CRDs on clusters: a superset is applied, a rollback removes nothing, and a version goes only after a migration."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kapsa.fleet.infrastructure.operations.crds.storage_migration import POSITION
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterRefused
from kapsa.fleet.orchestrator.ports.leases import LeaseLost
from kapsa.runtime import ApiError, Call
from tests.eventually import eventually
from tests.fleet.infrastructure.operations.harness import CRD, LimitedLease, Operations
from tests.fleet.served_kinds import served

KEEP = ("helm.sh/resource-policy", "keep")
WIDGETS = 33
MIGRATION = "storagemigration.k8s.io/v1beta1/StorageVersionMigration"


def shape(crd: dict[str, Any]) -> tuple[list[str], str, str]:
    """Return the versions of a CRD, its storage version, and its conversion."""
    versions = crd["spec"]["versions"]
    storage = next(each["name"] for each in versions if each["storage"])
    return sorted(each["name"] for each in versions), storage, crd["spec"]["conversion"]["strategy"]


def fields(crd: dict[str, Any], version: str) -> set[str]:
    one = next(each for each in crd["spec"]["versions"] if each["name"] == version)
    return set(one["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


def webhook(url: str = "https://127.0.0.1:1/convert") -> dict[str, Any]:
    config = {"clientConfig": {"url": url}, "conversionReviewVersions": ["v1"]}
    return {"strategy": "Webhook", "webhook": config}


async def test_a_chart_changes_a_crd_without_removing_anything_and_a_rollback_keeps_what_it_brought(
    operations: Operations,
) -> None:
    first = operations.chart(
        "sha256:1", operations.crd(operations.version("v1", storage=True, fields=("size", "old")))
    )
    await operations.apply(first)
    live = await operations.live_crd()
    assert KEEP in live["metadata"]["annotations"].items()
    await operations.create_widgets(3, "v1")
    before = await operations.content("v1")
    following = operations.crd(
        operations.version("v1", fields=("size", "new")), operations.version("v2", storage=True)
    )
    second = operations.chart("sha256:2", following)
    for _ in range(2):  # a repetition after a crash changes nothing more
        await operations.apply(second)
        live = await operations.live_crd()
        assert shape(live) == (["v1", "v2"], "v2", "None")
        assert fields(live, "v1") == {"size", "old", "new"}
    for _ in range(2):
        await operations.revert(second)
        live = await operations.live_crd()
        assert shape(live) == (["v1", "v2"], "v1", "None")
        assert fields(live, "v1") == {"size", "old", "new"}
    assert await operations.content("v1") == before
    assert operations.audit.actions() == ["cluster.apply_crds"] * 3 + ["cluster.revert_crds"] * 2


async def test_after_a_rollback_from_a_chart_with_a_conversion_webhook_every_resource_can_be_read(
    operations: Operations,
) -> None:
    await operations.apply(
        operations.chart("sha256:1", operations.crd(operations.version("v1", storage=True)))
    )
    await operations.create_widgets(3, "v1")
    before = await operations.content("v1")
    both = (operations.version("v1"), operations.version("v2", storage=True))
    bad = operations.chart("sha256:2", operations.crd(*both, conversion=webhook()))
    await operations.apply(bad)
    assert shape(await operations.live_crd()) == (["v1", "v2"], "v2", "Webhook")
    with pytest.raises(ApiError):
        await _until_raised(operations)
    await operations.revert(bad)
    assert shape(await operations.live_crd()) == (["v1", "v2"], "v1", "None")
    assert await _until_readable(operations, "v1") == before
    assert await _until_readable(operations, "v2") == before


async def _until_raised(operations: Operations) -> None:
    for _ in range(100):
        await operations.content("v2")
        await asyncio.sleep(0.1)


async def _until_readable(operations: Operations, version: str) -> str:
    """Read once the API server has taken the new conversion into use."""
    for _ in range(100):
        try:
            return await operations.content(version)
        except ApiError:
            await asyncio.sleep(0.1)
    return await operations.content(version)


async def test_the_conversion_of_a_crd_that_a_removed_chart_brought_ends_with_the_chart(
    operations: Operations,
) -> None:
    versions = (operations.version("v1"), operations.version("v2", storage=True))
    chart = operations.chart("sha256:1", operations.crd(*versions, conversion=webhook()))
    await operations.apply(chart)
    await operations.revert(chart)
    assert shape(await operations.live_crd()) == (["v1", "v2"], "v2", "None")


async def test_nothing_is_applied_if_the_cluster_rejects_one_crd(operations: Operations) -> None:
    good = operations.crd(operations.version("v1", storage=True))
    bad = operations.crd(operations.version("v1", storage=True), plural="gadgets")
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "x-kubernetes-validations": [{"rule": "self.missing > 0"}],
        "type": "object",
    }
    chart = operations.chart("sha256:1", good, bad)
    with pytest.raises(ClusterRefused, match="rejects the CRD gadgets"):
        await operations.apply(chart)
    assert not await operations.crd_exists(operations.crd_name)


async def test_a_lapsed_lease_stops_before_the_first_write(operations: Operations) -> None:
    chart = operations.chart("sha256:1", operations.crd(operations.version("v1", storage=True)))
    with pytest.raises(LeaseLost):
        await operations.under_test.apply_crds(operations.request(chart), LimitedLease(1))  # the dry run
    assert not await operations.crd_exists(operations.crd_name)


async def test_a_crd_in_the_templates_of_the_live_release_is_kept_when_the_next_one_lacks_it(
    operations: Operations,
) -> None:
    kept = operations.crd(operations.version("v1", storage=True))
    await operations.install(operations.blue, kept)
    rendered = operations.crd(operations.version("v1", storage=True), plural="gadgets")
    await operations.apply("sha256:2", rendered)
    annotations = (await operations.live_crd())["metadata"]["annotations"]
    assert KEEP in annotations.items()
    assert await operations.crd_exists(f"gadgets.{operations.group}")


async def test_a_conversion_ends_before_its_service_goes_and_a_rollback_restores_it(
    operations: Operations,
) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "converter", "namespace": operations.blue.namespace},
        "spec": {"ports": [{"port": 443}]},
    }
    reference = {"service": {"name": "converter", "namespace": operations.blue.namespace}}
    conversion = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": reference, "conversionReviewVersions": ["v1"]},
    }
    versions = (operations.version("v1"), operations.version("v2", storage=True))
    first = operations.crd(*versions, conversion=conversion)
    await operations.install(operations.blue, service)
    await operations.apply(operations.chart("sha256:1", first), service)
    second = operations.chart("sha256:2")
    await operations.apply(second)
    assert shape(await operations.live_crd()) == (["v1", "v2"], "v2", "None")
    await operations.revert(second)
    restored = (await operations.live_crd())["spec"]["conversion"]
    assert restored["webhook"]["clientConfig"]["service"]["name"] == "converter"


async def test_a_version_is_dropped_after_a_migration_that_was_interrupted_and_resumed(
    operations: Operations,
) -> None:
    await _stored_in_alpha(operations)
    before = await operations.content("v1")
    third = operations.chart("sha256:3", operations.crd(operations.version("v1", storage=True)))
    writes: list[str] = []

    def count(call: Call, code: int, _: float) -> None:
        if call.resource == "widgets" and call.verb == "patch" and code == 200:
            writes.append(call.name)

    operations.client.observe(count)
    with pytest.raises(LeaseLost):
        # The dry run, two pages of ten with their positions, and a part of the third page.
        await operations.under_test.apply_crds(operations.request(third), LimitedLease(1 + 11 + 11 + 4))
    crd = await operations.live_crd()
    assert '"count":20' in crd["metadata"]["annotations"][POSITION]
    assert crd["status"]["storedVersions"] == ["v1alpha1", "v1"]
    assert len(writes) == 24
    await operations.apply(third)
    crd = await operations.live_crd()
    assert shape(crd) == (["v1"], "v1", "None")
    assert crd["status"]["storedVersions"] == ["v1"]
    assert POSITION not in crd["metadata"]["annotations"]
    assert (len(set(writes)), len(writes)) == (WIDGETS, WIDGETS + 4)
    assert await operations.content("v1") == before


async def test_a_resource_that_cannot_be_stored_again_is_named_and_no_version_is_dropped(
    operations: Operations,
) -> None:
    await _stored_in_alpha(operations)
    third = operations.chart("sha256:3", operations.crd(operations.version("v1", storage=True)))
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"deny.{operations.group}"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [operations.group],
                        "apiVersions": ["*"],
                        "resources": ["widgets"],
                        "operations": ["UPDATE"],
                    }
                ]
            },
            "validations": [{"expression": "object.metadata.name != 'w007'", "message": "w007 is frozen"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"deny.{operations.group}"},
        "spec": {"policyName": f"deny.{operations.group}", "validationActions": ["Deny"]},
    }
    await operations.client.create(policy)
    await operations.client.create(binding)
    await eventually(lambda: _is_frozen(operations), bool, "the policy to be in force")
    with pytest.raises(ClusterRefused, match=r"Widget default/w007 cannot be stored.*frozen"):
        await operations.apply(third)
    assert shape(await operations.live_crd())[0] == ["v1", "v1alpha1"]


async def _is_frozen(operations: Operations) -> bool:
    patch = {"metadata": {"annotations": {"probe": "x"}}}
    kind = f"{operations.group}/v1/Widget"
    try:
        await operations.client.patch(kind, "w007", patch, namespace="default", dry_run=True)
    except ApiError:
        return True
    return False


async def test_the_migration_of_the_cluster_is_used_where_it_is_served(operations: Operations) -> None:
    """The API of storage migrations, which clusters serve only if it is enabled, is played by a CRD and by the test."""
    await _stored_in_alpha(operations)
    any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": any_object, "status": any_object}}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    name = "storageversionmigrations.storagemigration.k8s.io"
    api = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "storagemigration.k8s.io",
            "scope": "Cluster",
            "names": {"plural": "storageversionmigrations", "kind": "StorageVersionMigration"},
            "versions": [version],
        },
    }
    await operations.client.create(api)
    third = operations.chart("sha256:3", operations.crd(operations.version("v1", storage=True)))
    before = await operations.content("v1")
    try:
        await eventually(lambda: served(operations.client, MIGRATION), bool, "the API of migrations")
        await asyncio.gather(operations.apply(third), _migrate(operations))
    finally:
        await operations.client.delete(CRD, name)
    assert shape(await operations.live_crd())[0] == ["v1"]
    assert await operations.content("v1") == before


async def _migrate(operations: Operations) -> None:
    """Play the controller of storage migrations: write every resource again, then report it."""
    widgets = f"{operations.group}/v1/Widget"
    migrations = await eventually(lambda: _migrations(operations), bool, "a migration")
    assert migrations[0]["spec"]["resource"] == {"group": operations.group, "resource": "widgets"}
    for widget in await operations.client.list(widgets, metadata_only=True):
        await operations.client.patch(widgets, widget["metadata"]["name"], {}, namespace="default")
    status = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    await operations.client.patch(MIGRATION, migrations[0]["metadata"]["name"], status, subresource="status")


async def _migrations(operations: Operations) -> list[dict[str, Any]]:
    return list(await operations.client.list(MIGRATION))


async def _stored_in_alpha(operations: Operations) -> None:
    """Bring a cluster to the second chart, which no longer has the version that resources are stored in."""
    alpha = operations.version("v1alpha1", storage=True)
    await operations.apply(operations.chart("sha256:1", operations.crd(alpha, operations.version("v1"))))
    await operations.create_widgets(WIDGETS, "v1alpha1")
    await operations.apply(
        operations.chart("sha256:2", operations.crd(operations.version("v1", storage=True)))
    )
    # The chart before has it: it stays for a rollback.
    assert shape(await operations.live_crd()) == (["v1", "v1alpha1"], "v1", "None")
