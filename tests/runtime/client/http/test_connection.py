"""Responses of API servers, of proxies and of servers that are neither, byte by byte."""

import asyncio
import gzip
from collections.abc import Iterable

import pytest

from kapsa.runtime import errors
from kapsa.runtime.client.auth.access import Authorization, StaticAccess
from kapsa.runtime.client.http.transport import HttpTransport
from tests.runtime.client.servers import OK, raw_server, read_request, respond_with, transport_to

pytestmark = pytest.mark.each_loop


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ([OK], b"{}"),
        ([bytes([each]) for each in OK], b"{}"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", OK], b"{}"),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK], b"{}"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n"], b"{}"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
        ([b"HTTP/1.1 304 Not Modified\r\n\r\n"], b""),
        ([b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"], b""),
    ],
)
async def test_a_response_is_read_however_it_is_split_and_framed(parts: Iterable[bytes], body: bytes) -> None:
    async with transport_to(respond_with(*parts)) as transport:
        for _ in range(2):  # the connection is reused
            assert (await transport.request("GET", "/x", timeout=5)).body == body


async def test_a_response_without_a_length_ends_with_its_connection() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n{}")

    async with transport_to(handle) as transport:
        for _ in range(2):
            assert (await transport.request("GET", "/x", timeout=5)).body == b"{}"


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nlots\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "head of the response is larger"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 100_000,
            "trailer of the response is larger",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 44\r\n\r\n"
            + 2 * gzip.compress(b"{}"),
            "after the end of its gzip",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
            "which was not requested",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "not valid gzip"),
    ],
)
async def test_an_invalid_response_is_an_error_and_its_connection_is_not_reused(
    response: bytes, message: str
) -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(response if connections == 1 else OK)
        await reader.read()

    async with transport_to(handle) as transport:
        with pytest.raises(errors.TransportError, match=message) as caught:
            await transport.request("GET", "/x", timeout=5)
        assert caught.value.sent is True
        assert (await transport.request("GET", "/x", timeout=5)).body == b"{}"
    assert connections == 2


async def test_a_body_that_ends_too_early_is_an_error() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}")

    async with transport_to(handle) as transport:
        with pytest.raises(errors.TransportError, match="before the response was complete"):
            await transport.request("GET", "/x", timeout=5)


async def test_gzip_that_ends_too_early_is_an_error() -> None:
    truncated = gzip.compress(b"[]" * 99)[:15]
    response = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 15\r\n\r\n" + truncated
    async with transport_to(respond_with(response)) as transport:
        with pytest.raises(errors.TransportError, match="gzip data of the response ended too early"):
            await transport.request("GET", "/x", timeout=5)


async def test_an_unsolicited_response_is_never_mistaken_for_the_next_one() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(OK + (OK.replace(b"{}", b"[]") if connections == 1 else b""))
        await reader.read()

    async with transport_to(handle) as transport:
        for _ in range(2):
            assert (await transport.request("GET", "/x", timeout=5)).body == b"{}"
    assert connections == 2


async def test_a_connection_is_reused_and_a_closed_one_is_replaced() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for response in (OK, OK, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")):
            await read_request(reader)
            writer.write(response)
        await reader.read()

    async with transport_to(handle) as transport:
        for _ in range(6):
            await transport.request("GET", "/x", timeout=5)
    assert connections == 2


async def test_a_cancelled_request_frees_its_slot_and_leaves_no_response_behind() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if "/slow" in request:
            await reader.read()  # until the client has gone
        writer.write(OK)
        await reader.read()

    async with transport_to(handle, connections=1) as transport:
        slow = asyncio.create_task(transport.request("GET", "/slow"))
        await asyncio.sleep(0.05)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert (await transport.request("GET", "/x", timeout=5)).body == b"{}"


async def test_waiting_for_a_free_connection_ends_at_the_deadline() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with transport_to(handle, connections=1) as transport:
        first = asyncio.create_task(transport.request("GET", "/x"))
        await asyncio.sleep(0.05)
        with pytest.raises(errors.NoResponse, match="all connections were in use") as caught:
            await transport.request("POST", "/x", timeout=0.05)
        assert caught.value.sent is False
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/ü", "/a\0"])
async def test_a_path_that_would_inject_more_is_never_sent(path: str) -> None:
    async with transport_to(respond_with(OK)) as transport:
        with pytest.raises(ValueError, match="quote it"):
            await transport.request("GET", path)


async def test_a_header_with_a_line_break_is_never_sent() -> None:
    async with transport_to(respond_with(OK)) as transport:
        with pytest.raises(ValueError, match="must not contain a line break"):
            await transport.request("GET", "/x", headers={"Accept": "a\r\nX: y"})


async def test_a_slow_reader_of_a_stream_makes_the_server_wait() -> None:
    written = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(640):
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            written += 65536
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async with transport_to(handle) as transport, transport.stream("GET", "/watch") as stream:
        await asyncio.sleep(0.3)
        assert written < 30_000_000  # the rest waits in the server
        assert sum([len(chunk) async for chunk in stream]) == 640 * 65536


async def test_the_error_of_a_proxy_that_rejects_a_connection_names_the_proxy() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        assert request.startswith("CONNECT 10.9.8.7:6443 HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic bWU6cyBlY3JldA==" in request
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    async with raw_server(handle) as proxy:
        with_login = proxy.replace("http://", "http://me:s%20ecret@")
        transport = HttpTransport(StaticAccess("https://10.9.8.7:6443", proxy=with_login))
        with pytest.raises(
            errors.TransportError, match="the proxy rejected the connection: 407 Proxy Auth"
        ) as caught:
            await transport.request("GET", "/x", timeout=5)
        assert caught.value.sent is False
        assert "ecret" not in str(caught.value)
        await transport.close()


async def exchange(transport: HttpTransport, how: str) -> None:
    if how == "request":
        await transport.request("GET", "/x", timeout=5)
        return
    async with transport.stream("GET", "/x"):
        pass


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "the proxy sent an invalid response: 'SSH-2.0-OpenSSH_9.9'"),
        (b"x" * 100_000, "the proxy sent an invalid response"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "the proxy sent an invalid response"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "the proxy rejected the connection: 502 Bad Gateway"),
        (b"HTTP/1.1 200", "the proxy closed the connection"),
        (b"", "the proxy closed the connection"),
        (b"HTTP/1.1 200 Connection established\r\n\r\n", "cannot connect: "),
    ],
)
async def test_an_invalid_response_of_a_proxy_is_a_clear_error(response: bytes, message: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(response)

    async with raw_server(handle) as proxy:
        transport = HttpTransport(StaticAccess("https://10.9.8.7:6443", proxy=proxy))
        for how in ("request", "stream"):
            with pytest.raises(errors.TransportError, match=message) as caught:
                await asyncio.wait_for(exchange(transport, how), 3)
            assert caught.value.sent is False
        await transport.close()


async def test_a_proxy_that_never_responds_times_out() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(handle) as proxy:
        transport = HttpTransport(StaticAccess("https://10.9.8.7:6443", proxy=proxy), connect_timeout=0.1)
        with pytest.raises(errors.NoResponse, match="timed out while connecting"):
            await exchange(transport, "stream")
        await transport.close()


async def test_the_error_of_a_server_without_tls_says_so() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTPS request to an HTTP server.\n")
        await writer.drain()

    async with raw_server(handle) as server:
        transport = HttpTransport(StaticAccess(server.replace("http://", "https://"), Authorization()))
        with pytest.raises(
            errors.CertificateError,
            match="does not seem to use TLS: check whether its URL must start with http",
        ):
            await transport.request("GET", "/x", timeout=5)
        await transport.close()
