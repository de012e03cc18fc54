"""The quick start: an application served by a Deployment and a Service.

Run it with `kapsa run myapp:operator`.
"""

from typing import Annotated, Any, Literal

from kapsa.runtime import (
    Context,
    Controller,
    CustomResource,
    Field,
    Operator,
    Requeue,
    Spec,
    Status,
    printer_column,
    rule,
)


class MyAppSpec(Spec):
    """The application to run."""

    image: Annotated[str, Field(min_length=1)]
    """The container image, such as nginx:1.29."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 1
    """The number of replicas."""
    port: Annotated[int, Field(ge=1, le=65535)] = 80
    """The port of the container and of the Service."""


class MyAppStatus(Status):
    """The state of the application."""

    phase: Literal["Pending", "Running"] = "Pending"
    """Running once all replicas are ready."""
    ready_replicas: int = 0
    """The number of ready replicas."""


class MyApp(
    CustomResource[MyAppSpec, MyAppStatus],
    group="example.com",
    version="v1",
    short_names=["app"],
    columns=[
        printer_column("Image", ".spec.image"),
        printer_column("Ready", ".status.readyReplicas", type="integer"),
        printer_column("Phase", ".status.phase"),
    ],
    rules=[
        rule("self.metadata.name.matches('^[a-z][-a-z0-9]{0,62}$')", "the name must be a valid Service name")
    ],
):
    """An application served by a Deployment and a Service."""


class MyAppController(Controller[MyApp]):
    owns = ("apps/v1/Deployment", "v1/Service")
    max_concurrent_reconciles = 5

    async def reconcile(self, app: MyApp, ctx: Context[MyApp]) -> Requeue | None:
        deployment = await ctx.apply(deployment_for(app))
        await ctx.apply(service_for(app))
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        all_ready = ready == app.spec.replicas
        ctx.status.ready_replicas = ready
        ctx.status.phase = "Running" if all_ready else "Pending"
        ctx.condition(
            "Ready",
            all_ready,
            reason="AllReplicasReady" if all_ready else "WaitingForReplicas",
            message=f"{ready} of {app.spec.replicas} replicas are ready",
        )
        return None


def deployment_for(app: MyApp) -> dict[str, Any]:
    """Return the Deployment that runs the application."""
    container = {
        "name": "app",
        "image": app.spec.image,
        "ports": [{"containerPort": app.spec.port}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app.name, "labels": labels_of(app)},
        "spec": {
            "replicas": app.spec.replicas,
            "selector": {"matchLabels": labels_of(app)},
            "template": {"metadata": {"labels": labels_of(app)}, "spec": {"containers": [container]}},
        },
    }


def service_for(app: MyApp) -> dict[str, Any]:
    """Return the Service of the application."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": app.name, "labels": labels_of(app)},
        "spec": {"selector": labels_of(app), "ports": [{"name": "http", "port": app.spec.port}]},
    }


def labels_of(app: MyApp) -> dict[str, str]:
    """Return the labels that select the pods of this application only."""
    return {"app.kubernetes.io/name": "myapp", "app.kubernetes.io/instance": app.name}


operator = Operator(controllers=[MyAppController()], leader_election="myapp-operator")
