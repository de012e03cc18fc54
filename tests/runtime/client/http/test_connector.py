"""The life of a client's connections: opened, given up at any moment, closed, and opened again elsewhere."""

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
    client_of,
    heard,
    pair_for,
    saying,
    server_tls,
    talking,
    tunnelling,
)

pytestmark = pytest.mark.each_loop

MOMENTS = 40
"""Turns of the event loop after which an exchange is interrupted. Most take fewer."""


@pytest.fixture(scope="module")
def authority() -> CertificatePair:
    return make_authority("test", now=datetime.now(UTC), lifetime=DAY)


@pytest.fixture
def trusted_by_the_system(
    authority: CertificatePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's certificate is judged by the system's trust store."""
    store = tmp_path / "store.pem"
    store.write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(store))


@contextlib.asynccontextmanager
async def way(kind: str, authority: CertificatePair) -> AsyncIterator[ClusterAccess]:
    """To a server that answers, on the way named."""
    tls = server_tls(pair_for(authority, "localhost", "127.0.0.1"))
    trusted = Authorization(tls=client_context(ca=authority.certificate))
    if kind == "plain":
        async with talking(saying(OK)) as server:
            yield StaticAccess(server)
        return
    async with talking(saying(OK), tls=tls) as server:
        if kind == "tls":
            yield StaticAccess(server, trusted)
            return
        async with tunnelling([], tls=tls if kind == "tls in tls" else None) as proxy:
            yield StaticAccess(server, trusted, proxy=proxy)


async def exchange(transport: HttpTransport, how: str) -> bytes:
    if how == "request":
        return (await transport.request("GET", "/x", timeout=5)).body
    async with transport.stream("GET", "/x") as stream:
        return b"".join([chunk async for chunk in stream])


async def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("trusted_by_the_system")
@pytest.mark.parametrize("kind", ["plain", "tls", "tunnel", "tls in tls"])
@pytest.mark.parametrize("how", ["request", "stream"])
async def test_an_exchange_that_is_cancelled_at_any_moment_leaves_nothing_behind(
    authority: CertificatePair, kind: str, how: str
) -> None:
    async with way(kind, authority) as access:
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
            assert (
                await exchange(transport, "request") == b"{}"
            )  # its place is free, its socket not in the way
            await transport.close()
        await eventually(open_files, lambda count: count <= before, "the last sockets to be closed")


@pytest.mark.usefixtures("trusted_by_the_system")
@pytest.mark.parametrize("kind", ["plain", "tls", "tunnel", "tls in tls"])
@pytest.mark.parametrize("how", ["request", "stream"])
async def test_closing_at_any_moment_ends_what_is_under_way_with_a_clear_error(
    authority: CertificatePair, kind: str, how: str
) -> None:
    async with way(kind, authority) as access:
        ends = set()
        for moment in range(MOMENTS):
            transport = HttpTransport(access, connections=1)
            tasks = [asyncio.create_task(exchange(transport, how)) for _ in range(3)]
            await turns(moment)
            await transport.close()
            async with asyncio.timeout(3):
                for end in await asyncio.gather(*tasks, return_exceptions=True):
                    ends.add(str(end).rpartition(": ")[2] if type(end) is errors.TransportError else end)
        assert ends <= {"the client was closed", b"{}"}
        assert "the client was closed" in ends


async def test_closing_does_not_wait_for_a_server_that_does_not_answer_the_handshake(
    authority: CertificatePair,
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking(silent) as server:
        transport = HttpTransport(StaticAccess(server.replace("http", "https")), connections=1)
        tasks = [asyncio.create_task(exchange(transport, "request")) for _ in range(3)]
        await asyncio.sleep(0.05)
        await transport.close()
        async with asyncio.timeout(2):
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(end, errors.TransportError)
                assert not end.sent


@pytest.mark.parametrize("how", ["request", "stream"])
async def test_a_connection_that_comes_about_while_the_client_is_closed_is_closed_with_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Connector.connect
    connected: asyncio.Future[HttpConnection] = asyncio.get_running_loop().create_future()
    go_on = asyncio.Event()

    async def connecting(connector: Connector, tls: ssl.SSLContext | bool) -> HttpConnection:
        connection = await connect(connector, tls)
        connected.set_result(connection)
        await go_on.wait()
        return connection

    monkeypatch.setattr(Connector, "connect", connecting)
    async with client_of(saying(OK)) as transport:
        under_way = asyncio.create_task(exchange(transport, how))
        connection = await connected
        go_on.set()
        await transport.close()  # in the same turn
        with pytest.raises(errors.TransportError, match="the client was closed") as caught:
            await under_way
        assert caught.value.sent is False
        await asyncio.wait_for(connection.ended, 2)


async def test_a_closed_client_says_that_it_is_closed() -> None:
    async with client_of(saying(OK)) as transport:
        assert await exchange(transport, "request") == b"{}"
        await transport.close()
        for how in ("request", "stream"):
            with pytest.raises(errors.TransportError, match="the client was closed") as caught:
                await exchange(transport, how)
            assert caught.value.sent is False


async def test_an_answer_without_a_length_is_not_taken_for_whole_when_the_client_is_closed() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heard(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n{")
        await reader.read()

    async with client_of(talk) as transport:
        request = asyncio.create_task(transport.request("GET", "/x"))
        await asyncio.sleep(0.1)
        await transport.close()
        with pytest.raises(errors.TransportError, match="the client was closed"):
            await request


async def test_a_stream_whose_new_credentials_cannot_be_got_is_closed(authority: CertificatePair) -> None:
    gone = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heard(reader)
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        gone.set()

    class Broken(StaticAccess):
        async def rejected(self, used: Authorization) -> bool:
            raise errors.CredentialError("the plugin failed")

    async with talking(talk) as server:
        transport = HttpTransport(Broken(server))
        with pytest.raises(errors.CredentialError):
            await exchange(transport, "stream")
        await asyncio.wait_for(gone.wait(), 2)
        await transport.close()


async def test_a_write_never_leaves_after_its_deadline_whenever_the_loop_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    send = HttpConnection.send
    sent: list[float] = []

    def sending(connection: HttpConnection, request: bytes, answer: ResponseReceiver) -> None:
        sent.append(loop.time())
        send(connection, request, answer)

    monkeypatch.setattr(HttpConnection, "send", sending)
    async with talking(saying(OK)) as server:
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


async def test_a_refusal_that_comes_before_the_request_has_left_is_heard() -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await heard(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}" if connections == 1 else OK)
        await writer.drain()
        await asyncio.sleep(60)  # the rest of the body is never read

    async with client_of(talk) as transport:
        refused = await transport.request("POST", "/x", body=b"x" * 20_000_000, timeout=5)
        assert (refused.status, refused.body) == (413, b"{}")
        # What is left of the body is in the way on that connection.
        assert (await transport.request("GET", "/x", timeout=5)).status == 200
    assert connections == 2


async def test_a_server_that_closes_at_once_is_no_riddle() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with client_of(talk) as transport:
        for how in ("request", "stream"):
            for _ in range(20):
                with pytest.raises(errors.TransportError):
                    await asyncio.wait_for(exchange(transport, how), 2)


async def test_a_connection_that_breaks_under_tls_may_have_carried_its_request(
    authority: CertificatePair,
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heard(reader)
        plain: socket.socket = writer.transport.get_extra_info("socket")
        os.write(plain.fileno(), b"\x17\x03\x03\x00\x20" + b"x" * 32)  # a record that nobody can decrypt
        await reader.read()

    async with talking(talk, tls=server_tls(pair_for(authority, "127.0.0.1"))) as server:
        trusted = Authorization(tls=client_context(ca=authority.certificate))
        transport = HttpTransport(StaticAccess(server, trusted))
        with pytest.raises(errors.TransportError) as caught:
            await transport.request("POST", "/x", timeout=5)
        assert caught.value.sent is True
        assert caught.value.retryable
        await transport.close()


async def test_a_server_that_refuses_our_certificate_has_not_seen_the_request(
    authority: CertificatePair,
) -> None:
    """In TLS 1.3 the refusal comes after the handshake, when the first request is on its way."""
    tls = server_tls(pair_for(authority, "127.0.0.1"), clients=authority.certificate)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        handshake = tls.wrap_bio(incoming, outgoing, server_side=True)
        refused = False
        while not refused:
            incoming.write(await reader.read(65536))
            try:
                handshake.do_handshake()
            except ssl.SSLError as error:
                refused = not isinstance(error, ssl.SSLWantReadError)
            writer.write(outgoing.read())
        await reader.read()

    async with talking(talk) as server:
        trusted = Authorization(tls=client_context(ca=authority.certificate))
        transport = HttpTransport(StaticAccess(server.replace("http", "https"), trusted))
        with pytest.raises(errors.CertificateError, match=r"(?i)certificate.required") as caught:
            await transport.request("POST", "/x", timeout=5)
        assert caught.value.sent is False
        await transport.close()


# -- names and addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
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
async def test_an_address_that_is_none_is_a_clear_error_without_its_password(url: str, told: str) -> None:
    with pytest.raises(errors.ConfigError, match=told) as caught:
        HttpTransport(StaticAccess(url))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "connects_to", "is_called"),
    [
        ("https://API.Example.com/k8s/clusters/x/", "api.example.com:443", "api.example.com"),
        ("https://api:6443", "api:6443", "api:6443"),
        ("http://[fd00::1]", "[fd00::1]:80", "[fd00::1]"),
        ("https://[::1]:8443/", "[::1]:8443", "[::1]:8443"),
        ("https://bücher.example", "xn--bcher-kva.example:443", "xn--bcher-kva.example"),
    ],
)
async def test_a_port_that_goes_without_saying_is_not_said(
    url: str, connects_to: str, is_called: str
) -> None:
    place = HttpUrl.parse(url)
    assert (str(place), place.authority) == (connects_to, is_called)


async def test_a_server_behind_a_prefix_on_the_second_address_of_its_name_is_found() -> None:
    requests: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await heard(reader))
        writer.write(OK)

    async with talking(talk) as server:  # on 127.0.0.1 alone; localhost is ::1 too on most machines
        named = server.replace("127.0.0.1", "LOCALHOST") + "/k8s/clusters/x/"
        transport = HttpTransport(StaticAccess(named))
        assert await exchange(transport, "request") == b"{}"
        await transport.close()
    port = server.rpartition(":")[2]
    assert requests[0].startswith(f"GET /k8s/clusters/x/x HTTP/1.1\r\nHost: localhost:{port}\r\n")


async def test_a_name_that_has_moved_is_asked_for_again_after_a_failure(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    asked = 0

    async def resolve(host: str, port: int, **_: object) -> list[object]:
        nonlocal asked
        asked += 1
        where = unused_tcp_port if asked == 1 else port
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", where))]

    async with client_of(saying(OK)) as transport:
        monkeypatch.setattr(type(loop), "getaddrinfo", lambda _, host, port, **o: resolve(host, port, **o))
        with pytest.raises(errors.TransportError, match="refused"):
            await exchange(transport, "request")
        assert await exchange(transport, "request") == b"{}"


async def test_what_is_not_latin_is_sent_and_read_as_go_does() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        user = (await heard(reader)).partition("Impersonate-User: ")[2].partition("\r\n")[0]
        writer.write(OK.replace(b"\r\n\r\n", f"\r\nWarning: {user} → old\r\n\r\n".encode()))

    async with client_of(talk) as transport:
        answer = await transport.request("GET", "/x", headers={"Impersonate-User": "Žofie"}, timeout=5)
        assert answer.headers["warning"] == "Žofie → old"
