"""The operator of the demo: a site served by a Deployment."""

from __future__ import annotations

from typing import Annotated, Any

from kapsa.runtime import Context, Controller, CustomResource, Field, Operator, Spec, Status, printer_column

__all__ = ["Site", "operator"]


class SiteSpec(Spec):
    """What to serve."""

    image: str
    replicas: Annotated[int, Field(ge=1, le=10)] = 1


class SiteStatus(Status):
    """How it is served."""

    ready_replicas: int = 0


class Site(
    CustomResource[SiteSpec, SiteStatus],
    group="demo.kapsa.dev",
    version="v1",
    columns=[
        printer_column("Image", ".spec.image"),
        printer_column("Ready", ".status.readyReplicas", type="integer"),
    ],
):
    """A site served by a Deployment."""


class SiteController(Controller[Site]):
    owns = ("apps/v1/Deployment",)

    async def reconcile(self, site: Site, ctx: Context[Site]) -> None:
        deployment = await ctx.apply(_deployment(site))
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        ctx.status.ready_replicas = ready
        ctx.condition("Ready", ready == site.spec.replicas, reason="Replicas", message=f"{ready} are ready")


def _deployment(site: Site) -> dict[str, Any]:
    labels = {"site": site.metadata.name}
    containers = [{"name": "site", "image": site.spec.image}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": site.metadata.name},
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


operator = Operator(controllers=[SiteController()], metrics_port=None, health_port=None)
