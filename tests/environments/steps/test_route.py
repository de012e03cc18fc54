"""The route and TLS steps: an Ingress or an HTTPRoute, with a certificate."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.environments.settings import Settings
from tests.environments.fakes import deployment, service
from tests.environments.open_kinds import open_kind
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant, secret

pytestmark = pytest.mark.virtual_time  # kinds of others are installed, which would stay on a shared cluster

GATEWAY_KIND = "gateway.networking.k8s.io/v1/Gateway"
INGRESS, HTTP_ROUTE = "networking.k8s.io/v1/Ingress", "gateway.networking.k8s.io/v1/HTTPRoute"
CERTIFICATE = "cert-manager.io/v1/Certificate"
HOST = "one.preview.catalyst.dev"
GATEWAY = Settings(route_kind="HTTPRoute", gateway="ingress/public")


@pytest.fixture
def tenant(sandbox: Sandbox) -> Tenant:
    return Tenant(sandbox)


async def install(tenant: Tenant, kind: str) -> None:
    """Install a CRD of another project."""
    await tenant.client.create(open_kind(kind))
    await tenant.clock.sleep(1)


async def say(tenant: Tenant, kind: str, name: str, status: dict[str, Any]) -> None:
    """Write a status, as the controller of this kind does."""
    namespace = tenant.namespace_of("one")
    await tenant.client.patch(kind, name, {"status": status}, namespace=namespace, subresource="status")


async def install_gateway(tenant: Tenant) -> None:
    """Install the Gateway API, with the Gateway of the settings."""
    await install(tenant, HTTP_ROUTE)
    await install(tenant, GATEWAY_KIND)
    await make_gateway(tenant)


async def make_gateway(tenant: Tenant) -> None:
    namespace, _, name = GATEWAY.gateway.partition("/")
    await tenant.sandbox.make_namespace(namespace)
    version, _, kind = GATEWAY_KIND.rpartition("/")
    await tenant.client.create(
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    )


async def judge_route(tenant: Tenant, accepted: str, message: str = "") -> None:
    """Write the verdict of the Gateway's controller on the route."""
    await tenant.sandbox.exists(HTTP_ROUTE, "kapsa", namespace=tenant.namespace_of("one"))
    conditions = [{"type": "Accepted", "status": accepted, "message": message}]
    parent = {"parentRef": {"name": "public", "namespace": "ingress"}, "conditions": conditions}
    elsewhere = {"parentRef": {"name": "other"}, "conditions": [{"type": "Accepted", "status": "True"}]}
    await say(tenant, HTTP_ROUTE, "kapsa", {"parents": [elsewhere, parent]})


async def make_certificate(tenant: Tenant, name: str, ready: str) -> None:
    version, _, kind = CERTIFICATE.rpartition("/")
    metadata = {"name": name, "namespace": tenant.namespace_of("one")}
    await tenant.client.create({"apiVersion": version, "kind": kind, "metadata": metadata})
    await say(
        tenant, CERTIFICATE, name, {"conditions": [{"type": "Ready", "status": ready, "message": "an order"}]}
    )


def own_ingress(**tls: Any) -> dict[str, Any]:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rule = {"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    spec: dict[str, Any] = {"rules": [rule]}
    if tls:
        spec["tls"] = [{"hosts": [HOST], **tls}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "own"},
        "spec": spec,
    }


async def test_an_ingress_leads_from_the_host_to_the_service(tenant: Tenant) -> None:
    await tenant.start()
    await tenant.project()
    await tenant.environment(ingress={"path": "/app", "className": "internal"})
    ready = await tenant.ready()
    ingress = await tenant.client.get(INGRESS, "kapsa", namespace=tenant.namespace_of("one"))
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["backend"]["service"]) == (
        HOST,
        "/app",
        {"name": "web", "port": {"number": 80}},
    )
    assert ingress["spec"]["ingressClassName"] == "internal"
    assert ready.status.url == f"https://{HOST}/app"


async def test_an_http_route_leads_to_the_service_where_there_is_a_gateway(tenant: Tenant) -> None:
    await install_gateway(tenant)
    await tenant.start(GATEWAY)
    await tenant.project()
    await tenant.environment()
    await judge_route(tenant, "True")
    ready = await tenant.ready()
    route = await tenant.client.get(HTTP_ROUTE, "kapsa", namespace=tenant.namespace_of("one"))
    assert route["spec"]["parentRefs"] == [{"name": "public", "namespace": "ingress"}]
    assert route["spec"]["hostnames"] == [HOST]
    assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "web", "port": 80}]
    tls = ready.status.condition("TLSReady")
    assert tls is not None
    assert tls.reason == "TerminatedByGateway"
    assert await tenant.sandbox.get(INGRESS, "kapsa", namespace=tenant.namespace_of("one")) is None


async def test_a_gateways_refusal_is_reported(tenant: Tenant) -> None:
    await install_gateway(tenant)
    await tenant.start(GATEWAY)
    await tenant.project()
    await tenant.environment()
    await judge_route(tenant, "True")
    await tenant.ready()
    await judge_route(tenant, "False", "no listener has this hostname")
    failed = await tenant.reaches("one", "IngressReady", "False", "RouteNotAccepted")
    assert failed.status.failure is not None
    assert "no listener has this hostname" in failed.status.failure.message


async def test_a_cluster_without_the_gateway_api_is_reported(tenant: Tenant) -> None:
    await tenant.start(GATEWAY)
    await tenant.project()
    await tenant.environment()
    failed = await tenant.reaches("one", "IngressReady", "False", "Rejected")
    assert failed.status.failure is not None
    assert "KAPSA_ROUTE_KIND" in failed.status.failure.hint


async def test_another_kind_of_route_takes_the_place_of_the_first(tenant: Tenant) -> None:
    await install_gateway(tenant)
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.harness.kill()
    await tenant.start(GATEWAY)
    await tenant.reaches("one", "IngressReady", "False", "RoutePending")
    assert await tenant.sandbox.get(INGRESS, "kapsa", namespace=tenant.namespace_of("one")), (
        "it serves meanwhile"
    )
    await judge_route(tenant, "True")
    await tenant.sandbox.gone(INGRESS, "kapsa", namespace=tenant.namespace_of("one"))


async def test_an_environment_that_is_not_to_be_reached_has_no_route(tenant: Tenant) -> None:
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.environment(ingress={"enabled": False})
    await tenant.sandbox.gone(INGRESS, "kapsa", namespace=tenant.namespace_of("one"))
    ready = await tenant.ready()
    assert (ready.status.url, ready.status.urls) == (None, [])


@pytest.mark.parametrize("path", ["/x;} location / {", "/`) || PathPrefix(`/"])
async def test_a_path_that_breaks_out_of_a_controllers_configuration_is_refused(
    tenant: Tenant, path: str
) -> None:
    await tenant.start()
    await tenant.project()
    await tenant.environment(ingress={"path": path})
    failed = await tenant.reaches("one", "IngressReady", "False", "IngressPathRefused")
    assert failed.status.failure is not None
    assert "may contain only letters, digits" in failed.status.failure.message


async def test_of_several_services_the_project_names_one(tenant: Tenant) -> None:
    tenant.systems.renderer.objects = [deployment("web", "app:1"), service("web"), service("metrics", 9090)]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    failed = await tenant.reaches("one", "IngressReady", "False", "ServiceUnclear")
    assert failed.status.failure is not None
    assert "web" in failed.status.failure.message
    assert "metrics" in failed.status.failure.message
    named = {"type": "manifest", "path": "deploy", "service": {"name": "metrics", "port": 9090}}
    await tenant.project(deployment=named)
    await tenant.ready()
    ingress = await tenant.client.get(INGRESS, "kapsa", namespace=tenant.namespace_of("one"))
    backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "metrics", "port": {"number": 9090}}


# -- certificates --------------------------------------------------------------------------------------------


async def test_tls_waits_for_the_certificate_and_reports_its_condition(tenant: Tenant) -> None:
    await install(tenant, CERTIFICATE)
    tenant.systems.domains.issuer = ("ClusterIssuer", "letsencrypt")
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.reaches("one", "TLSReady", "False", "CertificatePending")
    ingress = await tenant.client.get(INGRESS, "kapsa", namespace=tenant.namespace_of("one"))
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "letsencrypt"
    assert tenant.systems.renderer.requests[-1].issuer == ("ClusterIssuer", "letsencrypt")
    assert ingress["spec"]["tls"] == [{"hosts": [HOST], "secretName": "kapsa-tls"}]
    await make_certificate(tenant, "kapsa-tls", "False")

    async def reports_the_order() -> bool:
        condition = (await tenant.get()).status.condition("TLSReady")
        return condition is not None and "an order" in condition.message

    await tenant.sandbox.until(reports_the_order, "TLSReady reports the state of the Certificate")
    await say(tenant, CERTIFICATE, "kapsa-tls", {"conditions": [{"type": "Ready", "status": "True"}]})
    ready = await tenant.ready()
    condition = ready.status.condition("TLSReady")
    assert condition is not None
    assert condition.reason == "CertificateReady"


async def test_without_cert_manager_nobody_waits_for_a_certificate(tenant: Tenant) -> None:
    tenant.systems.domains.issuer = ("ClusterIssuer", "letsencrypt")
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.reaches("one", "TLSReady", "True", "NoCertManager")


async def test_a_wildcard_certificate_that_is_missing_is_reported_until_it_is_created(tenant: Tenant) -> None:
    settings = Settings()
    await tenant.sandbox.make_namespace(settings.namespace)
    tenant.systems.domains.wildcard = "wildcard"
    await tenant.start(settings)
    await tenant.project()
    await tenant.environment()
    failed = await tenant.reaches("one", "IngressReady", "False", "WildcardMissing")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "Secret wildcard"
    await secret(tenant, "wildcard", settings.namespace, **{"tls.crt": "certificate", "tls.key": "key"})
    await tenant.reaches("one", "TLSReady", "True", "Wildcard")


async def test_a_missing_certificate_is_reported(tenant: Tenant) -> None:
    await tenant.start()
    await tenant.project()
    await tenant.environment(ingress={"tls": {"secretName": "mine"}})
    failed = await tenant.reaches("one", "TLSReady", "False", "CertificateMissing")
    assert failed.status.failure is not None
    assert failed.status.failure.object == "Secret mine"


async def test_tls_that_is_not_wanted_leaves_plain_http(tenant: Tenant) -> None:
    await tenant.start()
    await tenant.project()
    await tenant.environment(ingress={"tls": {"enabled": False}})
    ready = await tenant.ready()
    assert ready.status.url == f"http://{HOST}"
    assert (
        "tls" not in (await tenant.client.get(INGRESS, "kapsa", namespace=tenant.namespace_of("one")))["spec"]
    )


async def test_an_ingress_of_the_project_itself_is_used_and_its_certificate_waited_for(
    tenant: Tenant,
) -> None:
    await install(tenant, CERTIFICATE)
    own = own_ingress(secretName="own-tls")
    own["metadata"]["annotations"] = {"cert-manager.io/cluster-issuer": "letsencrypt"}
    tenant.systems.renderer.objects = [deployment("web", "app:1"), service("web"), own]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    await tenant.reaches("one", "TLSReady", "False", "CertificatePending")
    assert await tenant.sandbox.get(INGRESS, "kapsa", namespace=tenant.namespace_of("one")) is None
    await make_certificate(tenant, "own-tls", "True")
    ready = await tenant.ready()
    assert ready.status.url == f"https://{HOST}"


async def test_an_ingress_of_the_project_without_tls_is_plain_http(tenant: Tenant) -> None:
    tenant.systems.renderer.objects = [deployment("web", "app:1"), service("web"), own_ingress()]
    await tenant.start()
    await tenant.project()
    await tenant.environment()
    ready = await tenant.ready()
    assert ready.status.url == f"http://{HOST}"
    condition = ready.status.condition("TLSReady")
    assert condition is not None
    assert condition.reason == "NotRequested"
