"""An application that starts once its dependencies are ready, with an optional Ingress.

Its children are typed: `kapsa[models]` brings the classes of Kubernetes' own kinds, which mypy and pyright check.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import (
    Container,
    ContainerPort,
    EnvVar,
    PodSpec,
    PodTemplateSpec,
    ServicePort,
    ServiceSpec,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.networking_v1 import (
    HTTPIngressPath,
    HTTPIngressRuleValue,
    IngressBackend,
    IngressRule,
    IngressServiceBackend,
    IngressSpec,
    IngressTLS,
    ServiceBackendPort,
)
from lightkube.resources.apps_v1 import Deployment, StatefulSet
from lightkube.resources.core_v1 import Service
from lightkube.resources.networking_v1 import Ingress

from kapsa.runtime import (
    Cache,
    Context,
    Controller,
    CustomResource,
    Field,
    Key,
    Operator,
    Owns,
    Part,
    Requeue,
    Spec,
    Status,
    StoredObject,
    Watch,
    printer_column,
    rule,
)


class Dependency(Part):
    """An object in the same namespace that must be ready first."""

    kind: Literal["Application", "Deployment", "StatefulSet"] = "Application"
    """The kind of the object."""
    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The name of the object."""


class IngressRoute(Part):
    """The route to the application from outside the cluster."""

    host: Annotated[str, Field(min_length=1, max_length=253)]
    """The host name."""
    path: Annotated[str, Field(pattern="^/")] = "/"
    """The path prefix of requests to the application."""
    class_name: str = "nginx"
    """The ingress class."""
    tls_secret: str | None = None
    """A Secret with the certificate of the host. Without it, the application is served over plain HTTP."""


class ApplicationSpec(Spec):
    """The application to run."""

    image: Annotated[str, Field(min_length=1)]
    """The container image."""
    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """The number of replicas."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """The port of the container. The Service has port 80."""
    env: Mapping[str, str] = {}
    """Environment variables."""
    dependencies: Annotated[tuple[Dependency, ...], Field(map_keys=["kind", "name"])] = ()
    """Objects that must be ready before this application starts."""
    ingress: IngressRoute | None = None
    """The route from outside the cluster. If absent, the application is reachable only inside it."""


class ApplicationStatus(Status):
    """The state of the application."""

    phase: Literal["Pending", "Waiting", "Ready"] = "Pending"
    """Waiting while a dependency is not ready."""
    url: str | None = None
    """The URL outside the cluster."""


class Application(
    CustomResource[ApplicationSpec, ApplicationStatus],
    group="example.com",
    version="v1",
    short_names=["appl"],
    columns=[
        printer_column("Phase", ".status.phase"),
        printer_column("URL", ".status.url"),
        printer_column("Image", ".spec.image", priority=1),
    ],
    rules=[
        rule("self.metadata.name.matches('^[a-z][-a-z0-9]{0,62}$')", "the name must be a valid Service name")
    ],
):
    """An application with its dependencies and its route."""


def dependencies_of(stored: StoredObject) -> list[str]:
    """Return the dependencies of an application, as keys of the index."""
    dependencies = stored.to_dict().get("spec", {}).get("dependencies", [])
    return [f"{each.get('kind', 'Application')} {stored.namespace}/{each['name']}" for each in dependencies]


def dependants(changed: StoredObject, cache: Cache) -> list[Key]:
    """Return the applications that depend on an object."""
    kind = changed.to_dict()["kind"]
    return [app.key for app in cache.by_index(Application, "dependency", f"{kind} {changed.key}")]


class ApplicationController(Controller[Application]):
    owns = (
        Deployment,
        Service,
        Owns(Ingress, deletes=True),
    )
    watches = tuple(Watch(kind, map=dependants) for kind in (Application, Deployment, StatefulSet))
    indexes = {"dependency": dependencies_of}  # noqa: RUF012 - read only
    max_concurrent_reconciles = 5

    async def reconcile(self, app: Application, ctx: Context[Application]) -> Requeue | None:
        missing = [each for each in app.spec.dependencies if not is_ready(each, ctx)]
        if missing:
            names = ", ".join(f"{each.kind} {each.name}" for each in missing)
            ctx.status.phase = "Waiting"
            ctx.condition("Ready", False, reason="DependencyNotReady", message=f"waiting for {names}")
            return None  # a change of a dependency triggers the next run
        await ctx.apply(deployment_for(app))
        await ctx.apply(service_for(app))
        await reconcile_ingress(app, ctx)
        report(app, ctx, ctx.get(Deployment, app.name))
        return None


def report(app: Application, ctx: Context[Application], deployment: Deployment | None) -> None:
    """Report the state of the application in its status."""
    ready = ready_replicas(deployment)
    all_ready = ready >= app.spec.replicas
    ctx.status.phase = "Ready" if all_ready else "Pending"
    ctx.status.url = url_of(app)
    ctx.condition(
        "Ready",
        all_ready,
        reason="AllReplicasReady" if all_ready else "WaitingForReplicas",
        message=f"{ready} of {app.spec.replicas} replicas are ready",
    )


def is_ready(dependency: Dependency, ctx: Context[Application]) -> bool:
    """Return whether a dependency exists and is ready."""
    if dependency.kind == "Application":
        other = ctx.get(Application, dependency.name)
        return other is not None and other.status.is_true("Ready")
    workload = ctx.get(Deployment if dependency.kind == "Deployment" else StatefulSet, dependency.name)
    if workload is None or workload.spec is None:
        return False
    replicas = workload.spec.replicas
    return ready_replicas(workload) >= (1 if replicas is None else replicas)


def ready_replicas(workload: Deployment | StatefulSet | None) -> int:
    """Return the number of replicas that are ready."""
    if workload is None or workload.status is None:
        return 0
    return workload.status.readyReplicas or 0


async def reconcile_ingress(app: Application, ctx: Context[Application]) -> None:
    """Apply the Ingress if the spec has a route, and delete it otherwise."""
    if app.spec.ingress is None:
        await ctx.delete(Ingress, app.name)
    else:
        await ctx.apply(ingress_for(app, app.spec.ingress))


def deployment_for(app: Application) -> Deployment:
    """Return the Deployment that runs the application."""
    container = Container(
        name="app",
        image=app.spec.image,
        env=[EnvVar(name=name, value=value) for name, value in sorted(app.spec.env.items())],
        ports=[ContainerPort(name="http", containerPort=app.spec.port)],
    )
    pods = PodTemplateSpec(metadata=ObjectMeta(labels=labels_of(app)), spec=PodSpec(containers=[container]))
    return Deployment(
        metadata=metadata_of(app),
        spec=DeploymentSpec(
            replicas=app.spec.replicas, selector=LabelSelector(matchLabels=labels_of(app)), template=pods
        ),
    )


def service_for(app: Application) -> Service:
    """Return the Service of the application."""
    ports = [ServicePort(name="http", port=80, targetPort="http")]
    return Service(metadata=metadata_of(app), spec=ServiceSpec(selector=labels_of(app), ports=ports))


def ingress_for(app: Application, route: IngressRoute) -> Ingress:
    """Return the Ingress that routes requests to the Service."""
    service = IngressServiceBackend(name=app.name, port=ServiceBackendPort(name="http"))
    path = HTTPIngressPath(path=route.path, pathType="Prefix", backend=IngressBackend(service=service))
    spec = IngressSpec(
        ingressClassName=route.class_name,
        rules=[IngressRule(host=route.host, http=HTTPIngressRuleValue(paths=[path]))],
    )
    if route.tls_secret is not None:
        spec.tls = [IngressTLS(hosts=[route.host], secretName=route.tls_secret)]
    return Ingress(metadata=metadata_of(app), spec=spec)


def metadata_of(app: Application) -> ObjectMeta:
    """Return the metadata of each child."""
    return ObjectMeta(name=app.name, labels=labels_of(app))


def url_of(app: Application) -> str | None:
    """Return the URL outside the cluster, or None without a route."""
    route = app.spec.ingress
    if route is None:
        return None
    scheme = "https" if route.tls_secret is not None else "http"
    return f"{scheme}://{route.host}{route.path if route.path != '/' else ''}"


def labels_of(app: Application) -> dict[str, str]:
    """Return the labels that select the pods of this application only."""
    return {"app.kubernetes.io/name": "application", "app.kubernetes.io/instance": app.name}


operator = Operator(controllers=[ApplicationController()], leader_election="application-operator")
