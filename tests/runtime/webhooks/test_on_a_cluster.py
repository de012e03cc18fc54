"""The API server calls the operator's webhooks over TLS: it denies, applies the change, and converts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    AdmissionRequest,
    AdmissionResponse,
    Client,
    Converter,
    CustomResource,
    MutatingWebhook,
    ObjectMeta,
    Spec,
    Status,
    ValidatingWebhook,
    Webhooks,
    allow,
    custom_resource_definition,
    deny,
    errors,
)
from kapsa.runtime.webhooks.server import WebhookServer

CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"


class ShopSpec(Spec):
    image: str = ""
    replicas: int = 1


class ShopStatus(Status):
    ready: int = 0


class Shop(CustomResource[ShopSpec, ShopStatus], group="webhooks.example.com", version="v1", hub=True):
    """A shop."""


class OldSpec(Spec):
    picture: str = ""
    size: str = "1"


class OldShop(
    CustomResource[OldSpec, ShopStatus], group="webhooks.example.com", version="v1alpha1", kind="Shop"
):
    """A shop, as it was."""


class OldShopConverter(Converter[OldShop, Shop]):
    def to_hub(self, resource: OldShop) -> Shop:
        spec = ShopSpec(image=resource.spec.picture, replicas=int(resource.spec.size))
        return Shop(metadata=resource.metadata, spec=spec, status=resource.draft_status())

    def from_hub(self, resource: Shop) -> OldShop:
        spec = OldSpec(picture=resource.spec.image, size=str(resource.spec.replicas))
        return OldShop(metadata=resource.metadata, spec=spec, status=resource.draft_status())


class ShopValidator(ValidatingWebhook[Shop]):
    async def validate(self, request: AdmissionRequest[Shop]) -> AdmissionResponse:
        if request.object.spec.image == "bug":
            raise ZeroDivisionError("division by zero")
        if request.object.spec.replicas > 5:
            return deny(f"spec.replicas: at most 5, not {request.object.spec.replicas}")
        return allow()


class HungValidator(ValidatingWebhook[Shop]):
    path = "/hung"
    timeout_seconds = 1
    object_selector = {"matchLabels": {"hung": "yes"}}  # noqa: RUF012 - read only

    async def validate(self, request: AdmissionRequest[Shop]) -> AdmissionResponse:
        await asyncio.Event().wait()
        return allow()


class ShopDefaulter(MutatingWebhook[Shop]):
    async def mutate(self, request: AdmissionRequest[Shop]) -> AdmissionResponse:
        if not request.object.spec.image:
            request.change_spec(msgspec.structs.replace(request.object.spec, image="nginx"))
        return allow()


@pytest_asyncio.fixture
async def client(cluster: DevCluster, unused_tcp_port: int) -> AsyncIterator[Client]:
    """A client of a cluster that has the kind in two versions and calls our webhooks."""
    async with Client.connect(kubeconfig=cluster.kubeconfig, field_manager="shop-operator") as client:
        await client.apply(custom_resource_definition([OldShop, Shop]), force=True)
        webhooks = Webhooks(
            ShopValidator(),
            HungValidator(),
            ShopDefaulter(),
            converters=[OldShopConverter()],
            host="127.0.0.1",
            port=unused_tcp_port,
            url=f"https://127.0.0.1:{unused_tcp_port}",
        )
        server = WebhookServer(webhooks, client, operator="shop-operator")
        await server.start()
        try:
            async with asyncio.timeout(30):
                await server.ready.wait()
                await until_called(client)
            yield client
        finally:
            await server.stop()
            await client.delete(CRD, "shops.webhooks.example.com")
            for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
                await client.delete(f"admissionregistration.k8s.io/v1/{kind}", "shop-operator")
            await client.delete("v1/Secret", "shop-operator-webhook-certificates")


async def until_called(client: Client) -> None:
    """The API server takes up new kinds, registrations and conversions a moment after they are written."""
    old = OldShop(metadata=ObjectMeta(name="probe", namespace="default"), spec=OldSpec(size="99"))
    while True:
        # While it takes up a CRD's change, it says of the kind that it is shutting down.
        with contextlib.suppress(errors.Unavailable):
            if await refused(client, old) and await mutated(client):
                return
        await asyncio.sleep(0.1)


async def refused(client: Client, old: OldShop) -> bool:
    """Only once it is converted does the validator see that there are 99 replicas."""
    try:
        await client.create(old, dry_run=True)
    except errors.Forbidden:
        return True
    except (errors.NotFound, errors.InternalError):
        return False
    return False


async def mutated(client: Client) -> bool:
    made = await client.create(shop("probe"), dry_run=True)
    return made.spec.image == "nginx"


def shop(name: str, **spec: Any) -> Shop:
    return Shop(metadata=ObjectMeta(name=name, namespace="default"), spec=ShopSpec(**spec))


async def test_the_api_server_returns_our_message_and_applies_our_patch(client: Client) -> None:
    with pytest.raises(
        errors.Forbidden, match=r"validate-shop.* denied the request: spec.replicas: at most 5, not 6"
    ):
        await client.create(shop("big", replicas=6))
    made = await client.create(shop("small", replicas=2))
    assert made.spec == ShopSpec(image="nginx", replicas=2)


async def test_a_webhook_that_raises_denies_with_the_exception(client: Client) -> None:
    with pytest.raises(errors.ApiError, match=r"failed, so the write is denied: ZeroDivisionError"):
        await client.create(shop("buggy", image="bug"))


async def test_a_slow_webhook_responds_before_the_api_server_times_out(
    client: Client,
) -> None:
    metadata = ObjectMeta(name="hung", namespace="default", labels={"hung": "yes"})
    with pytest.raises(errors.ApiError, match=r"hung\.webhooks\.example\.com did not respond within 0\.5 s"):
        await client.create(Shop(metadata=metadata, spec=ShopSpec()))


async def test_the_api_server_converts_versions_through_the_webhook(client: Client) -> None:
    await client.create(shop("converted", image="nginx", replicas=3))
    old = await client.get(OldShop, "converted")
    assert old.spec == OldSpec(picture="nginx", size="3")
    await client.patch(OldShop, "converted", {"spec": {"size": "4"}})
    assert (await client.get(Shop, "converted")).spec.replicas == 4
    listed = await client.list(OldShop, namespace="default")
    assert [item.spec.size for item in listed.items if item.name == "converted"] == ["4"]
