"""From kopf: its tutorial's volume claim that goes with a resource, as one reconcile().

Run it with `kapsa run volumeclaim:operator`.
"""

from typing import Annotated, Any

from kapsa.runtime import Context, Controller, CustomResource, Field, Operator, Quantity, Spec, Status


class EphemeralVolumeClaimSpec(Spec):
    size: Quantity
    """Such as 10Gi. It may grow."""
    storage_class: Annotated[str, Field(min_length=1)] | None = None


class EphemeralVolumeClaimStatus(Status):
    claim: str | None = None
    phase: str | None = None


class EphemeralVolumeClaim(
    CustomResource[EphemeralVolumeClaimSpec, EphemeralVolumeClaimStatus],
    group="example.com",
    version="v1",
    short_names=["evc"],
):
    """A volume claim that goes with this resource."""


class EphemeralVolumeClaimController(Controller[EphemeralVolumeClaim]):
    owns = ("v1/PersistentVolumeClaim",)

    async def reconcile(self, evc: EphemeralVolumeClaim, ctx: Context[EphemeralVolumeClaim]) -> None:
        claim = await ctx.apply(claim_for(evc))
        ctx.status.claim = evc.name
        ctx.status.phase = claim.get("status", {}).get("phase")


def claim_for(evc: EphemeralVolumeClaim) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": evc.spec.size}},
    }
    if evc.spec.storage_class is not None:
        spec["storageClassName"] = evc.spec.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": evc.name, "labels": dict(evc.metadata.labels)},
        "spec": spec,
    }


operator = Operator(controllers=[EphemeralVolumeClaimController()], leader_election="volumeclaim-operator")
