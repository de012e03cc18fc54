"""The HTTP listener: sockets, streams, compression, limits, and clients that disconnect."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster
from tests.devcluster.embedded.api import CONFIGMAPS, configmap
from tests.eventually import eventually


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster(controllers=False) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def http(cluster: DevCluster) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cluster.url, auto_decompress=False) as session:
        yield session


async def test_requests_are_served_on_a_socket(http: aiohttp.ClientSession):
    async with http.post(CONFIGMAPS, json=configmap("one", a="1")) as created:
        assert created.status == 201
        assert created.headers["content-type"] == "application/json"
        body = await created.json()
    async with http.get(f"{CONFIGMAPS}/one") as existing:
        assert await existing.json() == body
    async with http.get(f"{CONFIGMAPS}/two") as missing:
        assert missing.status == 404
        assert (await missing.json())["reason"] == "NotFound"


async def test_a_watch_delivers_lines_at_once(http: aiohttp.ClientSession):
    async with http.get(CONFIGMAPS, params={"watch": "true"}) as stream:
        assert stream.headers["transfer-encoding"] == "chunked"
        for name in ("a", "b"):
            async with http.post(CONFIGMAPS, json=configmap(name)):
                pass
            event = json.loads(await stream.content.readline())
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)


async def test_a_watch_ends_cleanly_at_its_timeout(http: aiohttp.ClientSession):
    async with http.get(CONFIGMAPS, params={"watch": "1", "timeoutSeconds": "1"}) as stream:
        assert await stream.content.read() == b""


async def test_long_replies_are_compressed_for_clients_that_accept_it(
    http: aiohttp.ClientSession, cluster: DevCluster
):
    for number in range(3):
        async with http.post(CONFIGMAPS, json=configmap(f"big{number}", a="x" * 100_000)):
            pass
    async with http.get(CONFIGMAPS, headers={"accept-encoding": "gzip"}) as listed:
        assert listed.headers["content-encoding"] == "gzip"
        packed = await listed.read()
    assert len(packed) < 50_000
    assert len(json.loads(gzip.decompress(packed))["items"]) == 3
    async with http.get(CONFIGMAPS, headers={"accept-encoding": "identity"}) as plain:
        assert "content-encoding" not in plain.headers
    async with http.get(f"{CONFIGMAPS}/nope", headers={"accept-encoding": "gzip"}) as short:
        assert "content-encoding" not in short.headers


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_three_megabytes_is_rejected(http: aiohttp.ClientSession, chunked: bool):
    huge = json.dumps(configmap("huge", a="x" * (3 * 1024 * 1024))).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(huge), 65536):
            yield huge[start : start + 65536]

    headers = {"content-type": "application/json"}
    async with http.post(
        CONFIGMAPS, data=pieces() if chunked else io.BytesIO(huge), headers=headers
    ) as refused:
        assert refused.status == 413
        body = await refused.json()
    assert body["reason"] == "RequestEntityTooLarge"
    assert body["message"] == "Request entity too large: limit is 3145728"
    async with http.get("/livez") as alive:
        assert alive.status == 200


async def test_each_warning_has_its_own_header(http: aiohttp.ClientSession):
    body = {**configmap("one"), "bogus": 1, "worse": 2}
    async with http.post(CONFIGMAPS, json=body) as created:
        assert created.headers.getall("warning") == [
            '299 - "unknown field \\"bogus\\""',
            '299 - "unknown field \\"worse\\""',
        ]


async def test_a_client_that_disconnects_leaves_no_task_and_no_waiter(
    cluster: DevCluster, http: aiohttp.ClientSession
):
    async with http.get("/livez"):
        pass
    before = len(asyncio.all_tasks())
    collection = cluster.server.backend.store.collection("", "configmaps")
    for _ in range(10):
        stream = await http.get(CONFIGMAPS, params={"watch": "true"})
        stream.close()

    async def left() -> tuple[int, int]:
        return len(collection._waiters), len(asyncio.all_tasks())

    await eventually(left, lambda seen: seen <= (0, before), "the watches' end", seconds=10)


async def test_garbage_on_the_wire_does_not_stop_the_server(cluster: DevCluster, http: aiohttp.ClientSession):
    host, port = cluster.url.removeprefix("http://").split(":")
    for nonsense in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(nonsense)
        writer.write_eof()
        await reader.read()
        writer.close()
        await writer.wait_closed()
    async with http.get("/livez") as alive:
        assert alive.status == 200


async def test_stopping_ends_open_watches(cluster: DevCluster, http: aiohttp.ClientSession):
    stream = await http.get(CONFIGMAPS, params={"watch": "true"})
    await cluster.stop()
    async with asyncio.timeout(5):
        with contextlib.suppress(aiohttp.ClientError):
            await stream.content.read()
    stream.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8080"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "0.0.0.0:80"},
        {"origin": "https://evil.example"},
        {"origin": "http://localhost.evil.example:80"},
        {"origin": "null"},
    ],
)
async def test_a_web_page_cannot_use_the_cluster_through_a_browser(
    http: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    async with http.post(CONFIGMAPS, json=configmap("one"), headers=headers) as refused:
        assert refused.status == 403
        assert next(iter(headers.values())) in (await refused.json())["message"]
    async with http.get(f"{CONFIGMAPS}/one") as missing:
        assert missing.status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost:80"},
        {"host": "LOCALHOST"},
        {"host": "[::1]:80"},
        {"origin": "http://127.0.0.1:3000"},
    ],
)
async def test_the_names_of_the_loopback_address_are_served(
    http: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    async with http.get("/livez", headers=headers) as served:
        assert served.status == 200
