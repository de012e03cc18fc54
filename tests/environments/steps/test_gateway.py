"""Routes through a Gateway, which must exist and accept them. On both engines."""

from __future__ import annotations

import pytest_asyncio

from kapsa.environments.settings import Settings
from kapsa.runtime import ClientError
from tests.environments.open_kinds import open_kind
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

GATEWAY = "gateway.networking.k8s.io/v1/Gateway"
HTTP_ROUTE = "gateway.networking.k8s.io/v1/HTTPRoute"


def gateway_namespace(tenant: Tenant) -> str:
    return f"gates-{tenant.sandbox.unique}"


@pytest_asyncio.fixture
async def tenant(sandbox: Sandbox) -> Tenant:
    """A tenant on a cluster with the Gateway API, and no Gateway."""
    made = Tenant(sandbox)

    async def served() -> bool:
        try:
            for kind in (GATEWAY, HTTP_ROUTE):
                await sandbox.client.list(kind)
        except ClientError:
            return False
        return True

    for kind in (GATEWAY, HTTP_ROUTE):
        await sandbox.client.apply(open_kind(kind), field_manager="person", force=True)
    await sandbox.until(served, "the Gateway API is served")
    await made.start(Settings(route_kind="HTTPRoute", gateway=f"{gateway_namespace(made)}/public"))
    await made.project()
    return made


async def make_gateway(tenant: Tenant) -> None:
    namespace = gateway_namespace(tenant)
    await tenant.sandbox.make_namespace(namespace)
    version, _, kind = GATEWAY.rpartition("/")
    metadata = {"name": "public", "namespace": namespace}
    await tenant.client.create({"apiVersion": version, "kind": kind, "metadata": metadata})


async def accept_route(tenant: Tenant) -> None:
    """Accept the route, as the controller of the Gateway does."""
    parent = {
        "parentRef": {"name": "public", "namespace": gateway_namespace(tenant)},
        "conditions": [{"type": "Accepted", "status": "True"}],
    }
    await tenant.client.patch(
        HTTP_ROUTE,
        "kapsa",
        {"status": {"parents": [parent]}},
        namespace=tenant.namespace_of("one"),
        subresource="status",
    )


async def test_a_route_to_a_gateway_that_does_not_exist_is_not_ready(tenant: Tenant) -> None:
    await tenant.environment()
    failed = await tenant.reaches("one", "IngressReady", "False", "GatewayMissing")
    assert failed.status.failure is not None
    assert f"Gateway {gateway_namespace(tenant)}/public does not exist" in failed.status.failure.message
    assert "KAPSA_GATEWAY" in failed.status.failure.hint


async def test_a_route_is_ready_once_its_gateway_has_accepted_it(tenant: Tenant) -> None:
    await make_gateway(tenant)
    await tenant.environment()
    waiting = await tenant.reaches("one", "IngressReady", "False", "RoutePending")
    assert waiting.status.phase == "Deploying"
    await accept_route(tenant)
    await tenant.ready()


async def test_an_environment_is_ready_once_the_gateway_that_was_missing_exists(tenant: Tenant) -> None:
    await tenant.environment()
    await tenant.reaches("one", "IngressReady", "False", "GatewayMissing")
    await make_gateway(tenant)
    await tenant.reaches("one", "IngressReady", "False", "RoutePending")
    await accept_route(tenant)
    await tenant.ready()
