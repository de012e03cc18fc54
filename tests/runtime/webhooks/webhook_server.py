"""A webhook server for tests, on a cluster of its own, with webhooks and a converter for a sample kind."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    AdmissionRequest,
    AdmissionResponse,
    Client,
    Converter,
    CustomResource,
    MutatingWebhook,
    Spec,
    Status,
    ValidatingWebhook,
    Webhooks,
    allow,
    deny,
)
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.testing import InProcessTransport
from kapsa.runtime.webhooks.server import WebhookServer


class AppSpec(Spec):
    image: str = ""
    replicas: int = 1


class AppStatus(Status):
    ready: int = 0


class App(CustomResource[AppSpec, AppStatus], group="example.com", version="v1", hub=True):
    """An application."""


class OldSpec(Spec):
    picture: str = ""
    size: str = "1"


class OldApp(
    CustomResource[OldSpec, AppStatus], group="example.com", version="v1alpha1", kind="App", storage=False
):
    """An application in its first version."""


class OldAppConverter(Converter[OldApp, App]):
    def to_hub(self, resource: OldApp) -> App:
        spec = AppSpec(image=resource.spec.picture, replicas=int(resource.spec.size))
        return App(metadata=resource.metadata, spec=spec, status=resource.draft_status())

    def from_hub(self, resource: App) -> OldApp:
        spec = OldSpec(picture=resource.spec.image, size=str(resource.spec.replicas))
        return OldApp(metadata=resource.metadata, spec=spec, status=resource.draft_status())


class AppValidator(ValidatingWebhook[App]):
    operations = ("CREATE", "UPDATE", "DELETE")
    timeout_seconds = 1

    async def validate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
        if request.operation == "DELETE":
            assert request.old_object is not None
            return deny("it is protected") if request.old_object.spec.image == "precious" else allow()
        match request.object.spec.image:
            case "slow":
                await asyncio.sleep(30)
            case "bug":
                raise ZeroDivisionError("division by zero")
            case "cancelled":
                other = asyncio.create_task(asyncio.sleep(30))
                other.cancel()
                await other
            case "nonsense":
                return None  # type: ignore[return-value]
            case "sneaky":
                request.manifest["spec"]["replicas"] = 9
        if request.object.spec.replicas > 5:
            return deny(f"spec.replicas: at most 5, not {request.object.spec.replicas}", code=422)
        return allow(warnings=["v1 is new"] if request.user.username == "jane" else [])


class AppDefaulter(MutatingWebhook[App]):
    async def mutate(self, request: AdmissionRequest[App]) -> AdmissionResponse:
        spec = request.object.spec
        if not spec.image:
            request.change_spec(msgspec.structs.replace(spec, image="nginx"))
        request.manifest["metadata"].setdefault("labels", {})["team/owner"] = "a"
        return allow()


class PodPolicy(ValidatingWebhook[dict[str, Any]]):
    resource = "v1/Pod"
    failure_policy = "Ignore"
    namespace_selector = {"matchLabels": {"guarded": "yes"}}  # noqa: RUF012 - read only
    match_conditions = {"not-ours": "request.userInfo.username != 'kapsa'"}  # noqa: RUF012 - read only

    async def validate(self, request: AdmissionRequest[dict[str, Any]]) -> AdmissionResponse:
        return allow() if request.object["spec"].get("hostNetwork") is not True else deny("no host network")


def review(manifest: dict[str, Any] | None, **request: Any) -> dict[str, Any]:
    body = {"uid": "u-1", "operation": "CREATE", "object": manifest, "userInfo": {"username": "joe"}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**body, **request}}


def app(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop"}
    return {"apiVersion": "example.com/v1", "kind": "App", "metadata": metadata, "spec": spec}


class RunningServer:
    def __init__(self, server: WebhookServer, client: Client, seen: list[tuple[str, str]]) -> None:
        self.server, self.client, self.seen = server, client, seen

    async def bundle(self) -> bytes:
        secret = await self.client.get("v1/Secret", "shop-webhook-certificates")
        return base64.b64decode(secret["data"]["ca.crt"])

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        tls = client_context(ca=await self.bundle())
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"https://127.0.0.1:{self.server.port}{path}", data=data, ssl=tls) as answer,
        ):
            text = await answer.read()
            return answer.status, json.loads(text) if answer.status == 200 else text.decode()

    async def send(self, data: bytes) -> bytes:
        """Send bytes that need not be a request. Returns the first line of the response."""
        tls = client_context(ca=await self.bundle())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, ssl=tls)
        try:
            writer.write(data)
            return await reader.readline()
        finally:
            writer.close()

    async def admit(self, path: str, manifest: dict[str, Any] | None, **request: Any) -> dict[str, Any]:
        status, answer = await self.post(path, review(manifest, **request))
        assert status == 200
        assert answer["response"]["uid"] == "u-1"
        response: dict[str, Any] = answer["response"]
        return response


@asynccontextmanager
async def running(webhooks: Webhooks) -> AsyncIterator[RunningServer]:
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), field_manager="shop")
        seen: list[tuple[str, str]] = []
        server = WebhookServer(
            webhooks, client, operator="shop", observe=lambda name, outcome, _: seen.append((name, outcome))
        )
        await server.start()
        try:
            async with asyncio.timeout(10):
                await server.ready.wait()
            yield RunningServer(server, client, seen)
        finally:
            await server.stop()


def webhooks(*hooks: Any, **options: Any) -> Webhooks:
    return Webhooks(*hooks, host="127.0.0.1", port=0, url="https://127.0.0.1:1", **options)


VALIDATE = "/validate-example-com-v1-app"
MUTATE = "/mutate-example-com-v1-app"
