"""Hostile HTTP clients: the server survives them all, and nothing of them stays behind.

The responses to hostile requests are compared with the real server's in tests/behaviour/conformance
(cases/hostile.py and test_wire.py). These tests check the process: it serves other clients meanwhile, logs no
traceback, and ends with as many tasks and sockets as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from kapsa.devcluster import DevCluster
from tests.devcluster.embedded.api import CONFIGMAPS, CRDS, configmap
from tests.eventually import eventually

pytestmark = pytest.mark.sampled(20, of="module")


class Hostile:
    """A client that opens raw connections to a cluster and counts the tasks and sockets of its process."""

    def __init__(self, cluster: DevCluster) -> None:
        host, port = cluster.url.removeprefix("http://").split(":")
        self._address = host, int(port)
        self._tasks, self._sockets = len(asyncio.all_tasks()), _open_sockets()

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def send(self, data: bytes) -> tuple[int, str]:
        """Send bytes and end; return the status of the first response, and the last body."""
        async with self.connect() as (reader, writer), asyncio.timeout(30):
            writer.write(data)
            writer.write_eof()
            answer = await reader.read()
        if not answer:
            return 0, ""
        return int(answer.split(b" ", 2)[1]), answer.rpartition(b"\r\n\r\n")[2].decode()

    async def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json"
    ) -> tuple[int, Any]:
        status, text = await self.send(request(method, path, body, content_type))
        return status, json.loads(text) if text.startswith("{") else text

    async def check_for_leaks(self) -> None:
        """Check that the server responds, and that tasks and sockets are as before."""
        assert (await self.request("GET", "/livez"))[0] == 200

        async def count() -> tuple[int, int]:
            return len(asyncio.all_tasks()), _open_sockets()

        before = self._tasks, self._sockets
        await eventually(count, lambda now: now <= before, f"{before} tasks and sockets", seconds=20)


def request(method: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _open_sockets() -> int:
    descriptors = Path("/proc/self/fd")
    count = 0
    for entry in descriptors.iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(entry.readlink()).startswith("socket:")
    return count


@pytest_asyncio.fixture
async def hostile(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Hostile]:
    with capture_logs() as logs:
        async with DevCluster(controllers=False) as cluster:
            client = Hostile(cluster)
            await client.request("GET", "/livez")
            yield client
            await client.check_for_leaks()
    assert not [entry for entry in logs if entry["log_level"] in ("error", "critical")]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a million brackets in yaml": ("application/yaml", lambda: b"a: " + b"[" * 1_000_000),
    "a hundred thousand closed brackets in yaml": (
        "application/yaml",
        lambda: b"a: " + b"[" * 100_000 + b"]" * 100_000,
    ),
    "a million dashes in yaml": ("application/yaml", lambda: b"- " * 1_000_000),
    "a hundred thousand braces in yaml": ("application/yaml", lambda: b"{a: " * 100_000),
    "ten thousand anchors in yaml": (
        "application/yaml",
        lambda: b"\n".join(b"k%d: &a%d x" % (n, n) for n in range(10_000)) + b"\nz: *a1\n",
    ),
    "ten thousand unknown fields": (
        "application/json",
        lambda: json.dumps({f"k{number}": 1 for number in range(10_000)}).encode(),
    ),
    "a million brackets in json": ("application/json", lambda: b"[" * 1_000_000),
    "a hundred thousand objects in json": ("application/json", lambda: b'{"a":' * 100_000),
    "a number of a million digits": ("application/json", lambda: b'{"a":' + b"9" * 1_000_000 + b"}"),
    "a number of a million digits in yaml": ("application/yaml", lambda: b"a: " + b"9" * 1_000_000),
    "a float of a million digits": ("application/json", lambda: b'{"a":1.' + b"9" * 1_000_000 + b"}"),
    "an exponent beyond floats": ("application/json", lambda: b'{"a":1e999999999}'),
    "infinity in yaml": ("application/yaml", lambda: b"a: .inf\n"),
    "a name of a megabyte": ("application/json", lambda: json.dumps(configmap("x" * 1_000_000)).encode()),
    "binary data": ("application/json", lambda: bytes(range(256)) * 100),
    "a gzip header": ("application/json", lambda: b"\x1f\x8b" + b"\x00" * 1000),
}


@pytest.mark.parametrize("name", BODIES)
async def test_no_body_ends_the_process(hostile: Hostile, name: str):
    content_type, body = BODIES[name]
    for method, path in (("POST", CONFIGMAPS), ("DELETE", f"{CONFIGMAPS}/one")):
        status, answer = await hostile.request(method, path, body(), content_type)
        assert 400 <= status < 500, answer
        assert answer["kind"] == "Status"


PATCHES = {
    "application/merge-patch+json": b'{"data":' + b'{"a":' * 400 + b"1" + b"}" * 401,
    "application/strategic-merge-patch+json": b'{"metadata":' + b'{"labels":' * 400 + b"1" + b"}" * 401,
    "application/apply-patch+yaml": b"a: " + b"{a: " * 300 + b"}" * 300,
    "application/json-patch+json": json.dumps(
        [{"op": "copy", "from": "/metadata", "path": "/metadata/annotations"}] * 10_000
    ).encode(),
}


@pytest.mark.parametrize("content_type", PATCHES)
async def test_no_patch_ends_the_process(hostile: Hostile, content_type: str):
    await hostile.request("POST", CONFIGMAPS, json.dumps(configmap("one", a="x" * 1000)).encode())
    status, answer = await hostile.request(
        "PATCH", f"{CONFIGMAPS}/one?fieldManager=x", PATCHES[content_type], content_type
    )
    assert 400 <= status < 500, answer


async def test_a_deep_object_is_rejected_or_can_be_read(hostile: Hostile):
    definition = {
        "metadata": {"name": "frees.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "frees", "kind": "Free"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                    },
                }
            ],
        },
    }
    await hostile.request("POST", CRDS, json.dumps(definition).encode())
    frees = "/apis/example.com/v1/frees"
    for depth in (50, 100, 200, 300, 400, 600, 800):
        name = f"d{depth}"
        body = (
            b'{"apiVersion":"example.com/v1","kind":"Free","metadata":{"name":"%b"},"spec":' % name.encode()
        )
        body += b'{"a":' * depth + b"1" + b"}" * (depth + 1)
        status, answer = await hostile.request("POST", frees, body)
        assert status in (201, 400), answer
        if status == 400:
            assert "exceeded max depth" in answer["message"]
            continue
        for accept in ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"):
            head = f"GET {frees}/{name} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n"
            assert (await hostile.send(head.encode()))[0] == 200, (depth, accept)
        # Encoding YAML takes more of Python's stack than decoding it.
        head = f"GET {frees}/{name} HTTP/1.1\r\nhost: localhost\r\naccept: application/yaml\r\n\r\n"
        status, text = await hostile.send(head.encode())
        assert status == 200 or "exceeded max depth" in text, (depth, text)


async def test_aborted_watches_leave_nothing(hostile: Hostile):
    for _ in range(30):
        async with hostile.connect() as (reader, writer):
            writer.write(request("GET", f"{CONFIGMAPS}?watch=1", b""))
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            writer.transport.abort()


async def test_a_watcher_that_does_not_read_blocks_no_other_client(hostile: Hostile):
    async with hostile.connect() as (reader, writer):
        writer.write(request("GET", f"{CONFIGMAPS}?watch=1", b""))
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        for number in range(20):
            body = json.dumps(configmap(f"n{number}", a="x" * 300_000)).encode()
            status, _ = await hostile.request("POST", CONFIGMAPS, body)
            assert status == 201
        writer.transport.abort()


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"G",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-le",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{",
        b"POST / HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n",
    ],
    ids=["nothing", "a letter", "half a head", "half a body", "half a chunk", "a promise"],
)
@pytest.mark.parametrize("aborts", [True, False], ids=["aborted", "ended"])
async def test_incomplete_requests_leave_nothing(hostile: Hostile, start: bytes, aborts: bool):
    for _ in range(10):
        async with hostile.connect() as (reader, writer):
            writer.write(start)
            await writer.drain()
            if aborts:
                writer.transport.abort()
            else:
                writer.write_eof()
                await reader.read()


async def test_responses_that_no_client_reads_leave_nothing(hostile: Hostile):
    for _ in range(20):
        async with hostile.connect() as (_, writer):
            writer.write(request("GET", "/openapi/v2", b"") * 3)
            writer.transport.abort()


async def test_a_slow_body_blocks_no_other_client(hostile: Hostile):
    sent = request("POST", CONFIGMAPS, json.dumps(configmap("slow")).encode())
    async with hostile.connect() as (reader, writer):
        for byte in range(0, len(sent) - 1, 5):
            writer.write(sent[byte : min(byte + 5, len(sent) - 1)])
            await writer.drain()
            await asyncio.sleep(0)
        assert (await hostile.request("GET", "/livez"))[0] == 200
        writer.write(sent[-1:])
        assert await reader.readline() == b"HTTP/1.1 201 Created\r\n"


async def test_a_body_in_chunks_of_one_byte_is_read(hostile: Hostile):
    body = json.dumps(configmap("bits", a="x" * 100_000)).encode()
    head = f"POST {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    assert (await hostile.send(head + chunks))[0] == 201


@pytest.mark.parametrize("framing", [b"content-length: 100000000000", b"transfer-encoding: chunked"])
async def test_a_body_without_an_end_is_cut_off(hostile: Hostile, framing: bytes):
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n" % (CONFIGMAPS.encode(), framing)
    piece = b"x" * 65536
    if b"chunked" in framing:
        piece = b"%x\r\n%b\r\n" % (len(piece), piece)
    async with hostile.connect() as (reader, writer), asyncio.timeout(30):
        writer.write(head)
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(piece)
                await writer.drain()


async def test_a_tls_client_gets_an_error_at_once(hostile: Hostile):
    async with hostile.connect() as (reader, writer), asyncio.timeout(10):
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert b"this port serves HTTP, not HTTPS" in await reader.read()


async def test_a_hundred_pipelined_requests_are_answered_in_order(hostile: Hostile):
    async with hostile.connect() as (reader, writer), asyncio.timeout(30):
        writer.write(request("GET", "/livez", b"") * 100)
        writer.write_eof()
        assert (await reader.read()).count(b"HTTP/1.1 200 OK") == 100


async def test_three_hundred_connections_at_once_are_served(hostile: Hostile):
    answers = await asyncio.gather(*(hostile.request("GET", "/livez") for _ in range(300)))
    assert {status for status, _ in answers} == {200}
