"""Sessions with clusters that lie, stall, or resolve to another address than they did."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from kapsa.adapters.testing.loopback_tls import loopback_tls
from kapsa.fleet.infrastructure.clusters import answers
from kapsa.fleet.infrastructure.clusters import session as session_module
from kapsa.fleet.infrastructure.clusters.gateway import KubernetesGateway
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable, CredentialRejected, ServiceAccountRef

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
VERSION = json.dumps({"gitVersion": "v1.36.0"})
ACCOUNT = ServiceAccountRef("kapsa-fleet-test", "cluster-admin")


def kubeconfig(server: str, authority: str) -> bytes:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": "planted-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return yaml.safe_dump(document).encode()


@asynccontextmanager
async def hostile_server(handler: Handler) -> AsyncIterator[bytes]:
    """Serve HTTPS on loopback with one handler for all paths. Yield the kubeconfig for it."""
    context, authority = loopback_tls("hostile")
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield kubeconfig(f"https://127.0.0.1:{runner.addresses[0][1]}", authority)
    finally:
        await runner.cleanup()


RESOURCES = {
    "kind": "APIResourceList",
    "groupVersion": "v1",
    "resources": [
        {
            "name": name,
            "kind": kind,
            "namespaced": namespaced,
            "singularName": "",
            "verbs": ["get", "list", "create"],
        }
        for name, kind, namespaced in (
            ("nodes", "Node", False),
            ("namespaces", "Namespace", False),
            ("secrets", "Secret", True),
            ("serviceaccounts", "ServiceAccount", True),
        )
    ],
}


def answering(answers: dict[str, Any]) -> Handler:
    answers = {"/api/v1": RESOURCES, **answers}

    async def handle(request: web.Request) -> web.StreamResponse:
        answer = answers.get(request.path, answers.get("*"))
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(
            text=answer if isinstance(answer, str) else json.dumps(answer), content_type="application/json"
        )

    return handle


BOMB = gzip.compress(b" " * (64 * 1024 * 1024))


@pytest.mark.parametrize(
    "answer",
    [
        "not json",
        "[" * 200_000,
        "[]",
        '{"gitVersion": 3}',
        '{"gitVersion": "' + "x" * 40_000_000 + '"}',
    ],
    ids=["text", "deep", "list", "number", "huge"],
)  # fmt: skip
async def test_a_version_that_is_not_one_is_not_believed(answer: str) -> None:
    async with (
        hostile_server(answering({"*": answer})) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        try:
            identity = await session.identify()
        except ClusterUnreachable as error:
            assert "planted-token" not in str(error)  # noqa: PT017
            assert len(str(error)) < 1000  # noqa: PT017
        else:
            pytest.fail(f"believed {identity}")


async def test_a_compressed_bomb_is_cut_off() -> None:
    def bomb() -> web.Response:
        return web.Response(
            body=BOMB, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}
        )

    async def handle(request: web.Request) -> web.StreamResponse:
        return bomb()

    async with (
        hostile_server(handle) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        with pytest.raises(ClusterUnreachable):
            await session.read_health()


@pytest.mark.parametrize(
    "nodes",
    [
        {"items": [3]},
        {"items": [{"status": {"conditions": [1]}}]},
        {"items": {"a": 1}},
        {"kind": "NodeList"},
        {"items": [{"status": []}]},
    ],
)
async def test_a_list_of_nodes_that_is_not_one_is_a_reason_and_not_a_crash(nodes: dict[str, Any]) -> None:
    answers = {"/version": VERSION, "/readyz": "ok", "*": {"metadata": {"resourceVersion": "1"}, **nodes}}
    async with (
        hostile_server(answering(answers)) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        try:
            reading = await session.read_health()
        except ClusterUnreachable:
            return
    assert reading.nodes_ready == 0


async def test_an_answer_that_cannot_be_read_is_logged_with_its_traceback_and_without_its_content() -> None:
    node = {"metadata": {"name": "n"}, "status": {"conditions": ["planted-secret"]}}
    answers = {
        "/version": VERSION,
        "/readyz": "ok",
        "*": {"metadata": {"resourceVersion": "1"}, "items": [node]},
    }
    async with (
        hostile_server(answering(answers)) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        with capture_logs() as logs, pytest.raises(ClusterUnreachable, match="AttributeError"):
            await session.read_health()
    (entry,) = [each for each in logs if each["event"] == "an answer of a cluster could not be read"]
    assert (entry["log_level"], entry["error"]) == ("error", "AttributeError")
    assert "in _is_ready" in entry["traceback"]
    assert "planted-secret" not in str(entry)


async def test_a_server_that_stalls_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_SHORT", 0.3)

    async def handle(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async with (
        hostile_server(handle) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        with pytest.raises(ClusterUnreachable, match=r"did not answer within 0\.3 seconds"):
            await session.read_health()


async def test_a_list_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_LONG", 0.5)
    page = {"kind": "List", "metadata": {"resourceVersion": "1", "continue": "again"}, "items": []}
    async with (
        hostile_server(answering({"*": page})) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        with pytest.raises(ClusterUnreachable):
            await session.take_inventory(datetime.now(UTC))


async def test_a_redirect_is_not_followed_with_the_credential() -> None:
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async with (
        hostile_server(handle) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        with pytest.raises(ClusterUnreachable):
            await session.identify()
    assert "/elsewhere" not in seen


async def test_a_rejected_credential_is_told_apart_and_an_empty_token_is_not_used() -> None:
    async with (
        hostile_server(answering({"*": web.Response(status=401)})) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        with pytest.raises(CredentialRejected):
            await session.identify()
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": {"token": ""}}
    async with (
        hostile_server(answering({"*": token})) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        with pytest.raises(ClusterUnreachable, match="did not return a token"):
            await session.issue(ACCOUNT)


@pytest.mark.parametrize(
    ("granted", "hours"), [(3600, 1.0), (10**18, 12.0), (-5, 6.0), ("long", 6.0), (None, 6.0)]
)
async def test_the_lifetime_of_a_token_is_the_granted_one_within_reason(granted: Any, hours: float) -> None:
    token = {"spec": {"expirationSeconds": granted}, "status": {"token": "abc"}}
    async with (
        hostile_server(answering({"*": token})) as content,
        KubernetesGateway(allow_loopback=True).connect(content) as session,
    ):
        issued = await session.issue(ACCOUNT)
    assert issued.lifetime.total_seconds() == hours * 3600
    user = yaml.safe_load(issued.kubeconfig)["users"][0]["user"]
    assert user == {"token": "abc"}


async def test_the_address_is_judged_at_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    _, authority = loopback_tls("rebinding")
    content = kubeconfig("https://cluster.example.com:6443", authority)
    loop = asyncio.get_running_loop()

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", port))]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    async with KubernetesGateway(allow_loopback=True).connect(content) as session:
        with pytest.raises(ClusterUnreachable, match=r"169\.254\.169\.254, which is not allowed"):
            await session.identify()


async def test_a_server_with_another_certificate_is_not_talked_to() -> None:
    async with hostile_server(answering({"*": VERSION})) as content:
        document = yaml.safe_load(content)
        _, other = loopback_tls("other")
        document["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(
            other.encode()
        ).decode()
        async with KubernetesGateway(allow_loopback=True).connect(
            yaml.safe_dump(document).encode()
        ) as session:
            with pytest.raises(ClusterUnreachable, match="certificate"):
                await session.identify()


def depth(node: dict[str, Any]) -> int:
    return 1 + depth(node["child"]) if node else 0


async def test_an_object_that_is_too_deep_to_walk_through_is_an_invalid_answer() -> None:
    nested: dict[str, Any] = {}
    for _ in range(sys.getrecursionlimit()):
        nested = {"child": nested}
    with capture_logs() as lines, pytest.raises(ClusterUnreachable, match="is not valid: RecursionError"):
        async with answers.answering("the cluster", 1):
            depth(nested)
    assert [line["log_level"] for line in lines] == ["error"]
