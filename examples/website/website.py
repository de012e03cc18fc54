"""Many clusters: a website that one operator runs in each cluster that has a `Website`.

The directory in WEBSITE_CLUSTERS has a kubeconfig for each cluster, such as `eu.kubeconfig`. Run it with
`kapsa run website:operator`.
"""

import os
from typing import Annotated, Any

from kapsa.runtime import (
    Context,
    Controller,
    CustomResource,
    Field,
    KubeconfigDirectory,
    Operator,
    Spec,
    Status,
    printer_column,
)


class WebsiteSpec(Spec):
    """The website to run."""

    image: Annotated[str, Field(min_length=1)]
    """The container image. It finds the name of its cluster in the variable CLUSTER."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """The number of replicas in this cluster."""


class WebsiteStatus(Status):
    """The state of the website in this cluster."""

    cluster: str | None = None
    """The name of this cluster, as the operator has it."""
    ready_replicas: int = 0
    """The number of ready replicas."""


class Website(
    CustomResource[WebsiteSpec, WebsiteStatus],
    group="example.com",
    version="v1",
    columns=[
        printer_column("Cluster", ".status.cluster"),
        printer_column("Ready", ".status.readyReplicas", type="integer"),
    ],
):
    """A website, run in each cluster that has it."""


class WebsiteController(Controller[Website]):
    owns = ("apps/v1/Deployment",)
    max_concurrent_reconciles = 5

    async def reconcile(self, website: Website, ctx: Context[Website]) -> None:
        # The client, the cache and the events of `ctx` are those of the cluster that has this resource.
        deployment = await ctx.apply(deployment_for(website, ctx.cluster))
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        ctx.status.cluster = ctx.cluster
        ctx.status.ready_replicas = ready
        ctx.condition(
            "Ready",
            ready == website.spec.replicas,
            reason="Rollout",
            message=f"{ready} of {website.spec.replicas} replicas are ready in {ctx.cluster}",
        )


def deployment_for(website: Website, cluster: str) -> dict[str, Any]:
    """Return the Deployment of a website in a cluster."""
    labels = {"app.kubernetes.io/name": "website", "app.kubernetes.io/instance": website.name}
    container = {
        "name": "website",
        "image": website.spec.image,
        "env": [{"name": "CLUSTER", "value": cluster}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": website.name, "labels": labels},
        "spec": {
            "replicas": website.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


operator = Operator(
    controllers=[WebsiteController()],
    clusters=KubeconfigDirectory(os.environ.get("WEBSITE_CLUSTERS", "clusters")),
    leader_election="website-operator",
)
