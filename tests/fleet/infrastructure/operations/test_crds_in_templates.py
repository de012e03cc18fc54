"""CRDs in the templates of a chart, with the real Helm: neither an upgrade, a rollback nor an uninstall loses one."""

from __future__ import annotations

from typing import Any

from kapsa.fleet.orchestrator.ports.cluster_operations import CrdRequest
from kapsa.fleet.orchestrator.ports.helm import UpgradeRequest
from kapsa.fleet.orchestrator.rollout.approved_manifest import without_crds
from kapsa.runtime import ApiError
from tests.eventually import eventually
from tests.fleet.infrastructure.operations.harness import CLUSTER, Operations, lease
from tests.fleet.real_helm import CLUSTER as HELM_CLUSTER
from tests.fleet.real_helm import RealHelm, config_map

Manifest = dict[str, Any]
WIDGETS = 100


async def test_a_crd_that_leaves_the_templates_keeps_its_resources_through_upgrade_rollback_and_uninstall(
    operations: Operations,
) -> None:
    helm = RealHelm(operations.client)
    widgets = operations.crd(operations.version("v1", storage=True))
    gadgets = operations.crd(operations.version("v1", storage=True), plural="gadgets")
    try:
        await _install_by_hand(operations, helm, widgets, gadgets)
        await operations.create_widgets(WIDGETS, "v1")
        before = await _exactly(operations)
        # The next version lacks one CRD, and brings a conversion webhook for the other that never answers.
        both = (operations.version("v1"), operations.version("v2", storage=True))
        dead = {"clientConfig": {"url": "https://127.0.0.1:1/"}, "conversionReviewVersions": ["v1"]}
        converted = operations.crd(
            *both, plural="gadgets", conversion={"strategy": "Webhook", "webhook": dead}
        )
        await _upgrade(operations, helm, "sha256:2", converted)
        assert await _exactly(operations) == before
        await operations.revert("sha256:2")
        await helm.helm.rollback(HELM_CLUSTER, helm.release(), 1, lease())
        assert await _exactly(operations) == before
        await helm.helm.uninstall(HELM_CLUSTER, helm.release(), lease())
        assert await _exactly(operations) == before
        for version in ("v1", "v2"):
            kind = f"{operations.group}/{version}/Gadget"
            await eventually(lambda kind=kind: _readable(operations, kind), bool, f"{kind} to be readable")
        assert not await helm.states()
    finally:
        await helm.helm.close()


async def _install_by_hand(operations: Operations, helm: RealHelm, *crds: Manifest) -> None:
    """Leave what `helm install` of a person leaves: CRDs of the release, and a manifest that has them without `keep`."""
    await operations.namespace(helm.namespace)
    release = helm.release()
    for crd in crds:
        crd["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
        crd["metadata"]["annotations"] = {
            "meta.helm.sh/release-name": release.name,
            "meta.helm.sh/release-namespace": release.namespace,
        }
        await operations.client.apply(crd, field_manager="helm")
    await helm.helm.upgrade(helm.request(*crds, config_map("app", helm.namespace)), lease())
    await eventually(
        lambda: _readable(operations, f"{operations.group}/v1/Widget"), bool, "the kind to be served"
    )
    gadget = {
        "apiVersion": f"{operations.group}/v1",
        "kind": "Gadget",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"size": 1},
    }
    await eventually(
        lambda: _readable(operations, f"{operations.group}/v1/Gadget"), bool, "the kind to be served"
    )
    await operations.client.create(gadget)


async def _upgrade(operations: Operations, helm: RealHelm, digest: str, *crds: Manifest) -> None:
    """Do what the rollout engine does: CRDs first, then Helm with the rest of the approved bytes."""
    request: UpgradeRequest = helm.request(*crds, config_map("app", helm.namespace, version="2"))
    release = helm.release()
    approved = request.manifest
    crds = CrdRequest(CLUSTER, digest, operations.deployment_of(digest), release, release, approved)
    await operations.under_test.apply_crds(crds, lease())
    rest = {each: getattr(request, each) for each in request.__struct_fields__}
    await helm.helm.upgrade(UpgradeRequest(**{**rest, "manifest": without_crds(approved)}), lease())


async def _exactly(operations: Operations) -> list[Manifest]:
    """Return all widgets with all their metadata: a single write to one would show."""
    return list(await operations.client.list(f"{operations.group}/v1/Widget"))


async def _readable(operations: Operations, kind: str) -> bool:
    try:
        await operations.client.list(kind)
    except Exception as error:
        if isinstance(error, ApiError):
            return False
        raise
    return True
