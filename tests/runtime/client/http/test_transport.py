"""HttpTransport against servers on loopback."""

import asyncio
import base64
import gc
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from kapsa.runtime import Client, errors
from kapsa.runtime.client.auth.access import Authorization, StaticAccess
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.client.config import from_kubeconfig
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.webhooks.certificates import CertificatePair, issue_certificate, make_authority
from tests.runtime.client.fake_transport import App
from tests.runtime.client.servers import (
    DAY,
    OK,
    http_server,
    pair_for,
    read_request,
    server_tls,
    transport_to,
    tunnel_proxy,
)

pytestmark = pytest.mark.each_loop


@pytest.fixture(scope="module")
def authority() -> CertificatePair:
    return make_authority("test", now=datetime.now(UTC), lifetime=DAY)


@asynccontextmanager
async def transport_for(server: str, **options: object) -> AsyncIterator[HttpTransport]:
    access = options.pop("access", None) or StaticAccess(server)
    transport = HttpTransport(access, **options)  # type: ignore[arg-type]
    try:
        yield transport
    finally:
        await transport.close()


async def echo(request: web.Request) -> web.Response:
    body = await request.text()
    return web.json_response(
        {
            "path": request.raw_path,
            "method": request.method,
            "body": body,
            "agent": request.headers["User-Agent"],
        },
        headers={"X-Test": "yes"},
        status=202,
    )


async def test_a_request_and_its_response_arrive_unchanged() -> None:
    async with http_server(echo) as server, transport_for(server, user_agent="mine") as transport:
        response = await transport.request(
            "PATCH", "/api/v1/x/a%20b", query=[("labelSelector", "a in (b,c)"), ("x", "ü")], body=b"{}"
        )
        assert response.status == 202
        assert response.headers["x-test"] == "yes"
        assert b'"/api/v1/x/a%20b?labelSelector=a+in+%28b%2Cc%29&x=%C3%BC"' in response.body
        assert b'"agent": "mine"' in response.body


async def test_the_error_of_a_refused_connection_says_that_the_request_was_not_sent(
    unused_tcp_port: int,
) -> None:
    async with transport_for(f"http://127.0.0.1:{unused_tcp_port}") as transport:
        with pytest.raises(errors.TransportError, match="cannot connect: Connection refused") as caught:
            await transport.request("GET", "/x")
    assert caught.value.sent is False
    assert caught.value.retryable


async def test_the_error_of_a_broken_connection_says_that_the_request_may_have_been_received() -> None:
    async def abort(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with http_server(abort) as server, transport_for(server) as transport:
        with pytest.raises(errors.TransportError) as caught:
            await transport.request("POST", "/x", body=b"{}")
    assert caught.value.sent is True


async def test_a_server_that_does_not_respond_times_out() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with transport_to(silent) as transport:
        with pytest.raises(errors.NoResponse, match="no response in time") as caught:
            await transport.request("PATCH", "/x", timeout=0.05)
    assert caught.value.sent is True


async def test_a_write_that_waited_for_a_connection_is_not_sent_once_its_gate_is_closed() -> None:
    received: list[str] = []
    free, unanswered = asyncio.Event(), 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            received.append((await read_request(reader)).partition(" ")[0])
            await free.wait()
            writer.write(OK)

    def gate() -> float | None:
        if closed:
            raise errors.WriteRefused("the lease was lost")
        return 60.0

    def note() -> None:
        nonlocal unanswered
        unanswered += 1

    async with transport_to(handle, connections=1) as transport:
        closed = False
        slow = asyncio.create_task(transport.request("GET", "/slow"))
        client = Client(transport, namespace="default").derive(before_write=gate, on_unanswered=note)
        write = asyncio.create_task(client.delete(App, "web"))
        await asyncio.sleep(0.1)
        closed = True
        free.set()
        assert (await slow).status == 200
        with pytest.raises(errors.WriteRefused, match="the lease was lost"):
            await write
        closed = False
        await client.delete(App, "web")
    assert received == ["GET", "DELETE"]
    assert unanswered == 0


async def test_a_write_ends_with_its_gate_although_the_clock_of_the_loop_stood_still() -> None:
    """A suspension during a wait: the gate allows less time than was left before."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            await reader.read()

    began = asyncio.get_running_loop().time()
    async with transport_to(silent) as transport:
        with pytest.raises(errors.NoResponse, match="no response in time"):
            await transport.request("POST", "/x", timeout=5, before_send=lambda: 0.05)
        assert asyncio.get_running_loop().time() - began < 4


async def test_a_stream_whose_response_does_not_start_times_out_and_is_closed() -> None:
    gone = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        with suppress(ConnectionResetError):
            await reader.read()
        gone.set()

    async with transport_to(handle, timeout=0.05) as transport:
        with pytest.raises(errors.NoResponse, match=r"GET /log at .*: no response in time"):
            async with transport.stream("GET", "/log"):
                pass
        await asyncio.wait_for(gone.wait(), 2)


async def test_a_stream_that_has_started_may_be_silent_for_longer_than_the_timeout() -> None:
    timeout = 0.25

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.sleep(2 * timeout)
        writer.write(b"late")

    async with (
        transport_to(handle, timeout=timeout) as transport,
        transport.stream("GET", "/log") as response,
    ):
        assert [chunk async for chunk in response] == [b"late"]


async def test_a_redirect_is_never_followed() -> None:
    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("http://169.254.169.254/")

    async with http_server(redirect) as server, transport_for(server) as transport:
        assert (await transport.request("GET", "/x")).status == 307


async def test_gzip_is_accepted_only_when_requested() -> None:
    async def compressed(request: web.Request) -> web.Response:
        if request.headers.get("Accept-Encoding") != "gzip":
            return web.Response(text=f"plain {request.headers.get('Accept-Encoding')}")
        return web.Response(body=gzip.compress(b"[]" * 1000), headers={"Content-Encoding": "gzip"})

    async with http_server(compressed) as server, transport_for(server) as transport:
        assert (await transport.request("GET", "/x")).body == b"plain identity"
        zipped = await transport.request("GET", "/x", headers={"Accept-Encoding": "gzip"})
        assert zipped.body == b"[]" * 1000


async def test_a_response_beyond_the_limit_is_rejected_even_if_compressed() -> None:
    async def bomb(request: web.Request) -> web.Response:
        if request.path == "/plain":
            return web.Response(body=b"x" * 200_000)
        return web.Response(body=gzip.compress(b"\0" * 50_000_000), headers={"Content-Encoding": "gzip"})

    async with http_server(bomb) as server, transport_for(server, max_response_bytes=100_000) as transport:
        for path in ("/plain", "/bomb"):
            with pytest.raises(errors.ResponseTooLarge, match="larger than 100000 bytes"):
                await transport.request("GET", path)


async def test_watches_do_not_take_connections_from_requests() -> None:
    async def watch_or_respond(request: web.Request) -> web.StreamResponse:
        if request.path == "/get":
            return web.Response(text="here")
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b"first")
        await asyncio.sleep(60)
        return stream

    async with http_server(watch_or_respond) as server, transport_for(server, connections=1) as transport:
        watches = [transport.stream("GET", "/watch") for _ in range(5)]
        opened = [await watch.__aenter__() for watch in watches]
        for response in opened:
            assert await anext(aiter(response)) == b"first"
        assert (await transport.request("GET", "/get", timeout=5)).body == b"here"
        for watch in watches:
            await watch.__aexit__(None, None, None)


async def test_a_stream_that_breaks_off_raises_a_transport_error() -> None:
    async def abort(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b"first")
        assert request.transport is not None
        request.transport.abort()
        return stream

    async with (
        http_server(abort) as server,
        transport_for(server) as transport,
        transport.stream("GET", "/watch") as response,
    ):
        with pytest.raises(errors.TransportError):
            _ = [chunk async for chunk in response]


# TLS


async def test_a_server_is_trusted_by_its_authority(authority: CertificatePair) -> None:
    tls = server_tls(pair_for(authority, "127.0.0.1"))
    async with http_server(echo, tls=tls) as server:
        access = StaticAccess(server, Authorization(tls=client_context(ca=authority.certificate)))
        async with transport_for(server, access=access) as transport:
            assert (await transport.request("GET", "/x")).status == 202


async def test_closing_leaves_no_cancelled_connection_open(authority: CertificatePair) -> None:
    """A TLS connection that is closed waits for the server's close, which may never arrive."""

    arrived = asyncio.Event()
    served: list[asyncio.Transport] = []

    async def endless(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b"first")
        assert request.transport is not None
        request.transport.pause_reading()
        served.append(request.transport)
        if request.path == "/cancelled":
            arrived.set()
        await asyncio.sleep(60)
        return stream

    async with http_server(endless, tls=server_tls(pair_for(authority, "127.0.0.1"))) as server:
        access = StaticAccess(server, Authorization(tls=client_context(ca=authority.certificate)))
        transport = HttpTransport(access)
        async with transport.stream("GET", "/watch") as stream:
            await anext(aiter(stream))
            request = asyncio.create_task(transport.request("GET", "/cancelled"))
            await arrived.wait()
            request.cancel()
        await transport.close()
        assert connected_to(int(server.rpartition(":")[2])) == []
        for connection in served:
            connection.abort()


def connected_to(port: int) -> list[socket.socket]:
    """Return this process's open sockets that are connected to a port."""
    sockets = [each for each in gc.get_objects() if isinstance(each, socket.socket) and each.fileno() != -1]
    return [each for each in sockets if peer_port(each) == port]


def peer_port(connection: socket.socket) -> int | None:
    try:
        return int(connection.getpeername()[1])
    except (OSError, IndexError):  # not connected, or a pair without names
        return None


async def test_an_unknown_authority_is_a_clear_error(authority: CertificatePair) -> None:
    other = make_authority("other", now=datetime.now(UTC), lifetime=DAY)
    async with http_server(echo, tls=server_tls(pair_for(other, "127.0.0.1"))) as server:
        access = StaticAccess(server, Authorization(tls=client_context(ca=authority.certificate)))
        async with transport_for(server, access=access) as transport:
            with pytest.raises(
                errors.CertificateError, match=r"not trusted: .* check that this is the right cluster"
            ) as caught:
                await transport.request("GET", "/x")
    assert not caught.value.retryable


async def test_a_certificate_for_another_name_is_rejected_unless_tls_server_name_is_set(
    authority: CertificatePair,
) -> None:
    tls = server_tls(pair_for(authority, "api.internal"))
    async with http_server(echo, tls=tls) as server:
        trusted = Authorization(tls=client_context(ca=authority.certificate))
        async with transport_for(server, access=StaticAccess(server, trusted)) as transport:
            with pytest.raises(errors.CertificateError, match=r"not trusted.*127\.0\.0\.1.*tls-server-name"):
                await transport.request("GET", "/x")
        expected = StaticAccess(server, trusted, server_name="api.internal")
        async with transport_for(server, access=expected) as transport:
            assert (await transport.request("GET", "/x")).status == 202


async def test_the_error_for_an_expired_certificate_says_what_to_check(authority: CertificatePair) -> None:
    then = datetime.now(UTC) - 2 * DAY
    expired = issue_certificate(authority, ["127.0.0.1"], now=then, lifetime=DAY)
    async with http_server(echo, tls=server_tls(expired)) as server:
        access = StaticAccess(server, Authorization(tls=client_context(ca=authority.certificate)))
        async with transport_for(server, access=access) as transport:
            with pytest.raises(errors.CertificateError, match="expired; renew it, and compare the clocks"):
                await transport.request("GET", "/x")


async def test_a_client_certificate_is_presented_to_a_server_that_requests_it(
    authority: CertificatePair,
) -> None:
    async def subject_of(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        return web.Response(text=dict(entry[0] for entry in subject)["commonName"])

    tls = server_tls(pair_for(authority, "127.0.0.1"), clients=authority.certificate)
    me = pair_for(authority, "me", client=True)
    async with http_server(subject_of, tls=tls) as server:
        context = client_context(ca=authority.certificate, certificate=me.certificate, key=me.key)
        access = StaticAccess(server, Authorization(tls=context))
        async with transport_for(server, access=access) as transport:
            assert (await transport.request("GET", "/x")).body == b"me"


def test_a_key_with_a_passphrase_is_rejected_without_a_prompt(authority: CertificatePair) -> None:
    from cryptography.hazmat.primitives import serialization

    me = pair_for(authority, "me", client=True)
    key = serialization.load_pem_private_key(me.key, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(errors.ConfigError, match="encrypted"):
        client_context(certificate=me.certificate, key=encrypted)


async def test_requests_go_through_the_configured_proxy() -> None:
    seen: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append(str(request.url))
        return web.Response(text="proxied")

    async with http_server(proxy) as address:
        access = StaticAccess("http://cluster.invalid:8080", proxy=address)
        async with transport_for("", access=access) as transport:
            assert (await transport.request("GET", "/version")).body == b"proxied"
    assert seen == ["http://cluster.invalid:8080/version"]


async def test_tls_goes_through_a_tunnel_of_the_proxy_and_the_name_is_still_verified(
    authority: CertificatePair,
) -> None:
    seen: list[str] = []
    tls = server_tls(pair_for(authority, "api.internal"))
    trusted = Authorization(tls=client_context(ca=authority.certificate))
    async with http_server(echo, tls=tls) as server, tunnel_proxy(seen) as proxy:
        port = server.rpartition(":")[2]
        for host, name, fine in (
            ("api.internal", None, True),
            ("10.9.8.7", "api.internal", True),
            ("10.9.8.7", None, False),
        ):
            access = StaticAccess(f"https://{host}:{port}", trusted, server_name=name, proxy=proxy)
            async with transport_for("", access=access) as transport:
                if fine:
                    assert (await transport.request("GET", "/x")).status == 202
                else:
                    with pytest.raises(errors.CertificateError):
                        await transport.request("GET", "/x")
        assert seen == [f"api.internal:{port}", f"10.9.8.7:{port}", f"10.9.8.7:{port}"]


async def test_an_https_proxy_is_verified_against_its_own_authority_and_that_of_the_cluster(
    authority: CertificatePair, tmp_path: Path
) -> None:
    of_the_proxy = make_authority("proxy", now=datetime.now(UTC), lifetime=DAY)
    file = tmp_path / "proxy-ca.pem"
    file.write_bytes(of_the_proxy.certificate)
    tls = server_tls(pair_for(authority, "localhost", "127.0.0.1"))
    async with http_server(echo, tls=tls) as server:
        for issuer, environment, trusted in (
            (authority, {}, True),  # as kubectl does
            (of_the_proxy, {"KAPSA_PROXY_CA": str(file)}, True),
            (of_the_proxy, {}, False),
        ):
            proxy_tls = server_tls(pair_for(issuer, "127.0.0.1"))
            async with tunnel_proxy([], tls=proxy_tls) as proxy:
                data = base64.b64encode(authority.certificate).decode()
                kubeconfig = tmp_path / "kubeconfig"
                kubeconfig.write_text(
                    "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
                    f"clusters: [{{name: c, cluster: {{server: '{server}', proxy-url: '{proxy}', "
                    f"certificate-authority-data: {data}}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
                )
                access = from_kubeconfig([kubeconfig], environment=environment).access
                async with transport_for("", access=access) as transport:
                    if trusted:
                        assert (await transport.request("GET", "/x")).status == 202
                    else:
                        with pytest.raises(errors.CertificateError):
                            await transport.request("GET", "/x")


def test_an_authority_of_the_proxy_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
    )
    with pytest.raises(errors.ConfigError, match=r"KAPSA_PROXY_CA: file /nowhere.pem does not exist"):
        from_kubeconfig([kubeconfig], environment={"KAPSA_PROXY_CA": "/nowhere.pem"})


async def test_verification_is_off_only_if_insecure_is_set(authority: CertificatePair) -> None:
    async with http_server(echo, tls=server_tls(pair_for(authority, "somewhere"))) as server:
        for insecure in (False, True):
            access = StaticAccess(server, Authorization(tls=client_context(insecure=insecure)))
            async with transport_for(server, access=access) as transport:
                if insecure:
                    assert (await transport.request("GET", "/x")).status == 202
                else:
                    with pytest.raises(errors.CertificateError):
                        await transport.request("GET", "/x")


async def test_a_forbidden_address_behind_a_name_is_never_connected_to() -> None:
    def forbid(address: str) -> None:
        raise errors.ForbiddenAddress(f"{address} is forbidden", sent=False)

    async with http_server(echo) as server:
        by_name = server.replace("127.0.0.1", "localhost")
        access = StaticAccess(by_name, address_guard=forbid)
        async with transport_for(by_name, access=access) as transport:
            with pytest.raises(errors.ForbiddenAddress, match="is forbidden"):
                await transport.request("GET", "/x")


def test_no_private_key_is_left_on_disk(
    authority: CertificatePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    me = pair_for(authority, "me", client=True)
    client_context(certificate=me.certificate, key=me.key)
    assert list(tmp_path.iterdir()) == []
