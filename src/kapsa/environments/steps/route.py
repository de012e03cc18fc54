"""The route step: routes requests for the environment's host to its Service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from kapsa.adapters.errors import Refused
from kapsa.environments.hosts.routes import GATEWAY, HTTP_ROUTE, INGRESS, HostRoute, check_ingress
from kapsa.environments.names import MANAGED_BY, OPERATOR
from kapsa.environments.namespace_objects.children import marked, shown
from kapsa.environments.namespace_objects.copies import SECRET
from kapsa.environments.namespace_objects.reserved_names import ROUTE, TLS_SECRET
from kapsa.environments.resources import ServiceTarget
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.steps.step import Done, Outcome, StepFailure, Waiting
from kapsa.runtime import BadRequest, Forbidden, Invalid, UnknownKind

__all__ = ["RouteStep", "rendered_route", "uses_wildcard"]


class RouteStep:
    """The step that writes the Ingress or HTTPRoute, and the URL. Needs the host and the rendered Services."""

    name: ClassVar[str] = "route"
    condition: ClassVar[str] = "IngressReady"
    phase: ClassVar[Phase] = "Deploying"

    async def run(self, visit: StepRun) -> Outcome:
        if visit.host is None:
            await self._remove(visit)
            _set_urls(visit, [])
            return Done("it is not exposed outside the cluster", reason="NotRequested")
        try:
            check_ingress(visit.environment.spec.ingress, host=visit.host, namespace=visit.namespace)
        except Refused as refusal:
            return StepFailure(reason=refusal.reason, message=str(refusal), hint=refusal.hint, after=None)
        if (rendered := rendered_route(visit)) is not None:
            await self._remove(visit)
            scheme = "https" if _covers_tls(rendered, visit.host) else "http"
            _set_urls(visit, [f"{scheme}://{visit.host}"])
            return Done(f"the project's own {shown(rendered)} routes to it", reason="RenderedRoute")
        target = _target(visit)
        if isinstance(target, StepFailure):
            return target
        return await self._write(visit, *target)

    async def _write(self, visit: StepRun, service: str, port: int) -> Outcome:
        if (missing := _missing_wildcard(visit)) is not None:
            return missing
        secret, issuer = _certificate(visit)
        assert visit.host is not None
        ingress, settings = visit.environment.spec.ingress, visit.settings
        route = HostRoute(
            name=ROUTE,
            host=visit.host,
            service=service,
            port=port,
            path=ingress.path,
            kind=settings.route_kind,
            class_name=ingress.class_name or settings.ingress_class,
            gateway=settings.gateway,
            tls=ingress.tls.enabled,
            tls_secret=secret,
            issuer=issuer,
            annotations=ingress.annotations,
        )
        try:
            made = await visit.ctx.apply(marked(visit, route.manifest(), {MANAGED_BY: OPERATOR}), owner=False)
        except (Invalid, Forbidden, BadRequest, UnknownKind) as error:
            return StepFailure(
                reason="Rejected",
                message=f"the API server rejected the {route.kind}: {error}",
                object=f"{route.kind} {ROUTE}",
                hint="Check ingress of the Environment, and KAPSA_ROUTE_KIND of the operator.",
            )
        _set_urls(visit, [route.url])
        if route.kind == "HTTPRoute" and (blocked := _not_accepted(visit, made)) is not None:
            return blocked  # an Ingress from before serves meanwhile
        await self._remove(visit, other_than=route.kind)
        return Done(f"{route.host} routes to Service {service}", reason="RouteReady")

    async def _remove(self, visit: StepRun, *, other_than: str = "") -> None:
        for kind in (INGRESS, HTTP_ROUTE):
            if kind.rpartition("/")[2] != other_than:
                await visit.ctx.delete(kind, ROUTE, namespace=visit.namespace)


def uses_wildcard(visit: StepRun) -> bool:
    """Return whether the pool's wildcard certificate covers the host.

    Its key stays with the administrator: the ingress controller serves it by default, without a Secret in the
    environment's namespace, from which any of the environment's pods could read the key.
    """
    tls = visit.environment.spec.ingress.tls
    by_ingress = tls.enabled and visit.settings.route_kind == "Ingress"
    return by_ingress and visit.wildcard_secret is not None and tls.secret_name is None


def _certificate(visit: StepRun) -> tuple[str, tuple[str, str] | None]:
    """Return the Secret of the certificate and its issuer; empty for the default certificate."""
    tls = visit.environment.spec.ingress.tls
    if not tls.enabled or visit.settings.route_kind != "Ingress" or uses_wildcard(visit):
        return "", None
    return tls.secret_name or (TLS_SECRET if visit.issuer else ""), visit.issuer


def _missing_wildcard(visit: StepRun) -> StepFailure | None:
    """Return the failure for a wildcard certificate that does not exist."""
    name, namespace = visit.wildcard_secret, visit.settings.namespace
    if not uses_wildcard(visit) or name is None:
        return None
    if visit.ctx.get(SECRET, name, namespace=namespace, track=True) is not None:
        return None
    return StepFailure(
        reason="WildcardMissing",
        message=f"the DomainPool's wildcard certificate is missing: Secret {name} does not exist in namespace {namespace}",
        object=f"Secret {name}",
        hint="Ask an administrator to create it, or to remove wildcardSecretName from the DomainPool.",
        after=None,
    )


def _set_urls(visit: StepRun, urls: list[str]) -> None:
    visit.ctx.status.urls = urls
    visit.ctx.status.url = urls[0] if urls else None


def rendered_route(visit: StepRun) -> Manifest | None:
    """Return the project's own Ingress for the host, if it renders one."""
    for each in visit.objects:
        if each["kind"] == "Ingress" and any(
            rule.get("host") == visit.host for rule in (each.get("spec") or {}).get("rules") or ()
        ):
            return each
    return None


def _covers_tls(ingress: Manifest, host: str) -> bool:
    return any(host in (each.get("hosts") or ()) for each in ingress["spec"].get("tls") or ())


def _target(visit: StepRun) -> tuple[str, int] | StepFailure:
    """Return the Service and the port that receive the requests."""
    target = visit.project.spec.deployment.service or ServiceTarget()
    services = [
        each
        for each in visit.objects
        if each["kind"] == "Service" and (each.get("spec") or {}).get("ports") and _is_reachable(each)
    ]
    chosen = [each for each in services if target.name in ("", each["metadata"]["name"])]
    if len(chosen) != 1:
        return _no_target(target.name, services)
    ports = chosen[0]["spec"]["ports"]
    return chosen[0]["metadata"]["name"], target.port or int(ports[0]["port"])


def _is_reachable(service: Manifest) -> bool:
    spec: dict[str, Any] = service["spec"]
    return spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName"


def _no_target(name: str, services: Sequence[Manifest]) -> StepFailure:
    names = ", ".join(each["metadata"]["name"] for each in services)
    if name:
        message = f"Service {name} is not among the deployed Services ({names or 'none'})"
    elif services:
        message = f"several Services are deployed, and none is chosen: {names}"
    else:
        message = "no Service that could receive requests is deployed"
    return StepFailure(
        reason="ServiceUnclear",
        message=message,
        hint="Set deployment.service of the Project, or set ingress.enabled of the Environment to false.",
        after=None,
    )


def _not_accepted(visit: StepRun, route: Manifest) -> StepFailure | Waiting | None:
    """Return why an HTTPRoute serves nobody yet; None once its Gateway has accepted it.

    Nothing writes the status of a route to a Gateway that does not exist, or that no controller serves.
    """
    gateway = visit.settings.gateway
    namespace, _, name = gateway.partition("/")
    if visit.ctx.get(GATEWAY, name, namespace=namespace, track=True) is None:
        return StepFailure(
            reason="GatewayMissing",
            message=f"the HTTPRoute leads nowhere: Gateway {gateway} does not exist",
            object=f"HTTPRoute {ROUTE}",
            hint="Ask an administrator to create the Gateway, or to correct KAPSA_GATEWAY of the operator.",
            after=None,
        )
    conditions = list(_conditions(route, namespace, name))
    for condition in conditions:
        if condition.get("type") in ("Accepted", "ResolvedRefs") and condition.get("status") == "False":
            return StepFailure(
                reason="RouteNotAccepted",
                message=f"the Gateway rejected the route: {condition.get('message') or condition.get('reason', '')}",
                object=f"HTTPRoute {ROUTE}",
                after=None,
            )
    if any(each.get("type") == "Accepted" and each.get("status") == "True" for each in conditions):
        return None
    message = (
        f"waiting for Gateway {gateway} to accept the HTTPRoute: check that a controller serves this Gateway"
    )
    return Waiting(message=message, reason="RoutePending")


def _conditions(route: Manifest, namespace: str, name: str) -> Iterator[Manifest]:
    """Yield the conditions that the controller of a Gateway has set on a route."""
    for parent in (route.get("status") or {}).get("parents") or ():
        reference = parent.get("parentRef") or {}
        if (reference.get("namespace", namespace), reference.get("name")) == (namespace, name):
            yield from parent.get("conditions") or ()
