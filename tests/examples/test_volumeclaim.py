"""The operator of kopf's tutorial: a volume claim that goes with its resource."""

from examples.volumeclaim.volumeclaim import EphemeralVolumeClaim, operator
from tests.examples.namespaced_harness import NamespacedHarness

CLAIM = "v1/PersistentVolumeClaim"


async def label(harness: NamespacedHarness, **labels: str) -> None:
    """Apply a resource with exactly these labels."""
    manifest = {
        "apiVersion": EphemeralVolumeClaim.api_version,
        "kind": EphemeralVolumeClaim.kind,
        "metadata": {"name": "scratch", "namespace": harness.namespace, "labels": labels},
        "spec": {"size": "1Gi"},
    }
    await harness.client.apply(manifest, field_manager="person", force=True, field_validation="Strict")


async def labelled(harness: NamespacedHarness, **labels: str) -> None:
    async def has_labels() -> bool:
        claim = await harness.get(CLAIM, "scratch")
        return claim is not None and claim["metadata"].get("labels", {}) == labels

    await harness.until(has_labels, f"the claim has the labels {labels}")


async def test_a_claim_is_created_and_its_labels_follow(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await label(harness, team="data", stage="test")
    await labelled(harness, team="data", stage="test")
    claim = await harness.get(CLAIM, "scratch")
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    await label(harness, team="shop")
    await labelled(harness, team="shop")


async def test_a_deleted_claim_comes_back_and_goes_with_its_resource(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await label(harness)
    before = (await harness.exists(CLAIM, "scratch"))["metadata"]["uid"]
    await harness.client.delete(CLAIM, "scratch", namespace=harness.namespace)

    async def is_another() -> bool:
        claim = await harness.get(CLAIM, "scratch")
        return claim is not None and claim["metadata"]["uid"] != before

    await harness.until(is_another, "the claim comes back")
    await harness.client.delete(EphemeralVolumeClaim, "scratch", namespace=harness.namespace)
    await harness.gone(CLAIM, "scratch")
    surplus = harness.inner.verify_rights(operator)
    assert [each for each in surplus if "events" not in each and "leases" not in each] == []
