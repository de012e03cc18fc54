"""Connections of the client: opened, cancelled at any moment, closed, and opened to another address."""

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kapsa.runtime import errors
from kapsa.runtime.client.auth.access import Authorization, ClusterAccess, StaticAccess
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.client.http._connection import HttpConnection, ResponseReceiver
from kapsa.runtime.client.http._connector import Connector
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.client.http.url import HttpUrl
from kapsa.runtime.webhooks.certificates import CertificatePair, make_authority
from tests.eventually import eventually
from tests.runtime.client.servers import (
    DAY,
    OK,
    pair_for,
    raw_server,
    read_request,
    respond_with,
    server_tls,
    transport_to,
    tunnel_proxy,
)

pytestmark = pytest.mark.each_loop

MOMENTS = 40
"""The turns of the event loop after which an exchange is interrupted. Most exchanges take fewer."""


@pytest.fixture(scope="module")
def authority() -> CertificatePair:
    return make_authority("test", now=datetime.now(UTC), lifetime=DAY)


@pytest.fixture
def trusted_by_the_system(
    authority: CertificatePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make the system's trust store contain the authority, which verifies proxies."""
    store = tmp_path / "store.pem"
    store.write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(store))


@contextlib.asynccontextmanager
async def access_through(route: str, authority: CertificatePair) -> AsyncIterator[ClusterAccess]:
    """Access to a server that responds, through TLS and proxies as named."""
    tls = server_tls(pair_for(authority, "localhost", "127.0.0.1"))
    trusted = Authorization(tls=client_context(ca=authority.certificate))
    if route == "plain":
        async with raw_server(respond_with(OK)) as server:
            yield StaticAccess(server)
        return
    async with raw_server(respond_with(OK), tls=tls) as server:
        if route == "tls":
            yield StaticAccess(server, trusted)
            return
        async with tunnel_proxy([], tls=tls if route == "tls in tls" else None) as proxy:
            yield StaticAccess(server, trusted, proxy=proxy)


async def exchange(transport: HttpTransport, how: str) -> bytes:
    if how == "request":
        return (await transport.request("GET", "/x", timeout=60)).body
    async with transport.stream("GET", "/x") as stream:
        return b"".join([chunk async for chunk in stream])


async def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("trusted_by_the_system")
@pytest.mark.parametrize("route", ["plain", "tls", "tunnel", "tls in tls"])
@pytest.mark.parametrize("how", ["request", "stream"])
async def test_an_exchange_cancelled_at_any_moment_leaks_nothing(
    authority: CertificatePair, route: str, how: str
) -> None:
    async with access_through(route, authority) as access:
        warm = HttpTransport(access)
        assert await exchange(warm, how) == b"{}"
        await warm.close()
        before = await open_files()
        for moment in range(MOMENTS):
            transport = HttpTransport(access, connections=1)
            task = asyncio.create_task(exchange(transport, how))
            await turns(moment)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await exchange(transport, "request") == b"{}"  # its slot in the pool is free
            await transport.close()
        await eventually(open_files, lambda count: count <= before, "the last sockets to be closed")


@pytest.mark.usefixtures("trusted_by_the_system")
@pytest.mark.parametrize("route", ["plain", "tls", "tunnel", "tls in tls"])
@pytest.mark.parametrize("how", ["request", "stream"])
async def test_closing_at_any_moment_fails_exchanges_with_a_clear_error(
    authority: CertificatePair, route: str, how: str
) -> None:
    async with access_through(route, authority) as access:
        ends = set()
        for moment in range(MOMENTS):
            transport = HttpTransport(access, connections=1)
            tasks = [asyncio.create_task(exchange(transport, how)) for _ in range(3)]
            await turns(moment)
            await transport.close()
            async with asyncio.timeout(60):
                for end in await asyncio.gather(*tasks, return_exceptions=True):
                    ends.add(str(end).rpartition(": ")[2] if type(end) is errors.TransportError else end)
        assert ends <= {"the client was closed", b"{}"}
        assert "the client was closed" in ends


async def test_closing_does_not_wait_for_a_server_that_never_completes_the_handshake(
    authority: CertificatePair,
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(silent) as server:
        transport = HttpTransport(StaticAccess(server.replace("http", "https")), connections=1)
        tasks = [asyncio.create_task(exchange(transport, "request")) for _ in range(3)]
        await asyncio.sleep(0.05)
        await transport.close()
        async with asyncio.timeout(2):
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(end, errors.TransportError)
                assert not end.sent


@pytest.mark.parametrize("how", ["request", "stream"])
async def test_a_connection_that_opens_while_the_client_closes_is_closed(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Connector.connect
    connected: asyncio.Future[HttpConnection] = asyncio.get_running_loop().create_future()
    proceed = asyncio.Event()

    async def connect_and_wait(connector: Connector, tls: ssl.SSLContext | bool) -> HttpConnection:
        connection = await connect(connector, tls)
        connected.set_result(connection)
        await proceed.wait()
        return connection

    monkeypatch.setattr(Connector, "connect", connect_and_wait)
    async with transport_to(respond_with(OK)) as transport:
        under_way = asyncio.create_task(exchange(transport, how))
        connection = await connected
        proceed.set()
        await transport.close()  # in the same turn of the event loop
        with pytest.raises(errors.TransportError, match="the client was closed") as caught:
            await under_way
        assert caught.value.sent is False
        await asyncio.wait_for(connection.ended, 2)


async def test_requests_of_a_closed_client_fail_with_a_clear_error() -> None:
    async with transport_to(respond_with(OK)) as transport:
        assert await exchange(transport, "request") == b"{}"
        await transport.close()
        for how in ("request", "stream"):
            with pytest.raises(errors.TransportError, match="the client was closed") as caught:
                await exchange(transport, how)
            assert caught.value.sent is False


async def test_a_response_without_a_length_is_incomplete_when_the_client_closes() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n{")
        await reader.read()

    async with transport_to(handle) as transport:
        request = asyncio.create_task(transport.request("GET", "/x"))
        await asyncio.sleep(0.1)
        await transport.close()
        with pytest.raises(errors.TransportError, match="the client was closed"):
            await request


async def test_a_stream_is_closed_when_new_credentials_cannot_be_obtained(authority: CertificatePair) -> None:
    gone = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        gone.set()

    class Broken(StaticAccess):
        async def rejected(self, used: Authorization) -> bool:
            raise errors.CredentialError("the plugin failed")

    async with raw_server(handle) as server:
        transport = HttpTransport(Broken(server))
        with pytest.raises(errors.CredentialError):
            await exchange(transport, "stream")
        await asyncio.wait_for(gone.wait(), 2)
        await transport.close()


async def test_a_write_is_never_sent_after_its_deadline_whenever_the_loop_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    send = HttpConnection.send
    sent: list[float] = []

    def send_and_record(connection: HttpConnection, request: bytes, receiver: ResponseReceiver) -> None:
        sent.append(loop.time())
        send(connection, request, receiver)

    monkeypatch.setattr(HttpConnection, "send", send_and_record)
    async with raw_server(respond_with(OK)) as server:
        for moment in range(15):
            sent.clear()
            transport = HttpTransport(StaticAccess(server))
            deadline = loop.time() + 0.05
            write = asyncio.create_task(transport.request("POST", "/x", timeout=0.05))
            blocking = asyncio.create_task(turns(moment))
            blocking.add_done_callback(lambda _: time.sleep(0.1))
            (end,) = await asyncio.gather(write, return_exceptions=True)
            assert not isinstance(end, errors.NoResponse) or end.sent is bool(sent)
            assert all(when < deadline + 0.02 for when in sent)
            await blocking
            await transport.close()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("answered", [False, True])
async def test_a_request_that_is_given_up_resets_its_connection_and_an_idle_one_is_closed(
    secure: bool, answered: bool, authority: CertificatePair
) -> None:
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if answered:
            writer.write(OK)
        try:
            await reader.read()
        except ConnectionResetError:
            ends.put_nowait("reset")
        else:
            ends.put_nowait("closed")

    tls = server_tls(pair_for(authority, "127.0.0.1")) if secure else None
    async with raw_server(handle, tls=tls) as server:
        trusted = Authorization(tls=client_context(ca=authority.certificate))
        transport = HttpTransport(StaticAccess(server, trusted))
        with contextlib.nullcontext() if answered else pytest.raises(errors.NoResponse):
            await transport.request("POST", "/x", timeout=10 if answered else 0.2)
        await transport.close()
        assert await asyncio.wait_for(ends.get(), 5) == ("closed" if answered else "reset")


async def test_a_response_that_arrives_before_the_request_is_sent_is_returned() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}" if connections == 1 else OK)
        await writer.drain()
        await asyncio.sleep(60)  # the rest of the body is never read

    async with transport_to(handle) as transport:
        response = await transport.request("POST", "/x", body=b"x" * 20_000_000, timeout=5)
        assert (response.status, response.body) == (413, b"{}")
        # The rest of the body blocks that connection, so another is opened.
        assert (await transport.request("GET", "/x", timeout=5)).status == 200
    assert connections == 2


async def test_a_server_that_closes_at_once_is_a_transport_error() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with transport_to(handle) as transport:
        for how in ("request", "stream"):
            for _ in range(20):
                with pytest.raises(errors.TransportError):
                    await asyncio.wait_for(exchange(transport, how), 2)


async def test_a_connection_that_breaks_under_tls_may_have_carried_its_request(
    authority: CertificatePair,
) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        plain: socket.socket = writer.transport.get_extra_info("socket")
        os.write(plain.fileno(), b"\x17\x03\x03\x00\x20" + b"x" * 32)  # a record that cannot be decrypted
        await reader.read()

    async with raw_server(handle, tls=server_tls(pair_for(authority, "127.0.0.1"))) as server:
        trusted = Authorization(tls=client_context(ca=authority.certificate))
        transport = HttpTransport(StaticAccess(server, trusted))
        with pytest.raises(errors.TransportError) as caught:
            await transport.request("POST", "/x", timeout=5)
        assert caught.value.sent is True
        assert caught.value.retryable
        await transport.close()


async def test_a_server_that_rejects_the_client_certificate_has_not_received_the_request(
    authority: CertificatePair,
) -> None:
    """In TLS 1.3 the rejection arrives after the handshake, when the first request is on its way."""
    tls = server_tls(pair_for(authority, "127.0.0.1"), clients=authority.certificate)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        handshake = tls.wrap_bio(incoming, outgoing, server_side=True)
        rejected = False
        while not rejected:
            incoming.write(await reader.read(65536))
            try:
                handshake.do_handshake()
            except ssl.SSLError as error:
                rejected = not isinstance(error, ssl.SSLWantReadError)
            writer.write(outgoing.read())
        await reader.read()

    async with raw_server(handle) as server:
        trusted = Authorization(tls=client_context(ca=authority.certificate))
        transport = HttpTransport(StaticAccess(server.replace("http", "https"), trusted))
        with pytest.raises(errors.CertificateError, match=r"(?i)certificate.required") as caught:
            await transport.request("POST", "/x", timeout=5)
        assert caught.value.sent is False
        await transport.close()


# -- names and addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://api:99999", "Port out of range"),
        ("https://api:x", "is not a URL"),
        ("https://[::1", "is not a URL"),
        ("https://a..b", "is not a URL"),
        (f"https://{'a' * 64}.example", "is not a URL"),
        ("https://", "is not an http"),
        ("api:6443", "is not an http"),
        ("socks5://me:secret@proxy", "is not an http"),
    ],
)
async def test_the_error_for_an_invalid_url_does_not_contain_its_password(url: str, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message) as caught:
        HttpTransport(StaticAccess(url))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        ("https://API.Example.com/k8s/clusters/x/", "api.example.com:443", "api.example.com"),
        ("https://api:6443", "api:6443", "api:6443"),
        ("http://[fd00::1]", "[fd00::1]:80", "[fd00::1]"),
        ("https://[::1]:8443/", "[::1]:8443", "[::1]:8443"),
        ("https://bücher.example", "xn--bcher-kva.example:443", "xn--bcher-kva.example"),
    ],
)
async def test_the_default_port_is_left_out_of_the_authority(url: str, address: str, authority: str) -> None:
    parsed = HttpUrl.parse(url)
    assert (str(parsed), parsed.authority) == (address, authority)


async def test_a_server_with_a_path_prefix_on_the_second_address_of_its_name_is_reached() -> None:
    requests: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)

    async with raw_server(handle) as server:  # on 127.0.0.1 only; localhost is also ::1 on most machines
        named = server.replace("127.0.0.1", "LOCALHOST") + "/k8s/clusters/x/"
        transport = HttpTransport(StaticAccess(named))
        assert await exchange(transport, "request") == b"{}"
        await transport.close()
    port = server.rpartition(":")[2]
    assert requests[0].startswith(f"GET /k8s/clusters/x/x HTTP/1.1\r\nHost: localhost:{port}\r\n")


async def test_a_name_is_resolved_again_after_a_failed_connection(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    lookups = 0

    async def resolve(host: str, port: int, **_: object) -> list[object]:
        nonlocal lookups
        lookups += 1
        target_port = unused_tcp_port if lookups == 1 else port
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", target_port))]

    async with transport_to(respond_with(OK)) as transport:
        monkeypatch.setattr(type(loop), "getaddrinfo", lambda _, host, port, **o: resolve(host, port, **o))
        with pytest.raises(errors.TransportError, match="refused"):
            await exchange(transport, "request")
        assert await exchange(transport, "request") == b"{}"


async def test_headers_that_are_not_latin_1_are_sent_and_read_as_utf_8() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        user = (await read_request(reader)).partition("Impersonate-User: ")[2].partition("\r\n")[0]
        writer.write(OK.replace(b"\r\n\r\n", f"\r\nWarning: {user} → old\r\n\r\n".encode()))

    async with transport_to(handle) as transport:
        response = await transport.request("GET", "/x", headers={"Impersonate-User": "Žofie"}, timeout=5)
        assert response.headers["warning"] == "Žofie → old"
