"""Sources of serving certificates: a Secret shared by replicas, and a directory."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    Client,
    ConfigError,
    Lifetimes,
    WriteRefused,
)
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.testing import InProcessTransport
from kapsa.runtime.webhooks._certificate_sources import DirectoryCertificates, SecretCertificates
from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority
from kapsa.runtime.webhooks.server import WebhookServer
from tests.runtime.webhooks.webhook_server import (
    AppValidator,
    running,
    webhooks,
)


class ShiftedClock:
    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return self.ahead.total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


@asynccontextmanager
async def secret_sources(count: int) -> AsyncIterator[tuple[ShiftedClock, Client, list[SecretCertificates]]]:
    clock = ShiftedClock()
    async with DevCluster(http=False, controllers=False) as cluster:
        client = Client(InProcessTransport(cluster), clock=clock)
        yield clock, client, [
            SecretCertificates(client, namespace="default", name="certs", hosts=["a.svc"], lifetimes=Lifetimes())
            for _ in range(count)
        ]  # fmt: skip


async def test_replicas_that_start_together_share_one_certificate() -> None:
    async with secret_sources(4) as (_, client, sources):
        results = await asyncio.gather(*(source.current() for source in sources))
        assert all(result == results[0] for result in results)
        secret = await client.get("v1/Secret", "certs")
        assert secret["type"] == "kubernetes.io/tls"


async def test_a_rotation_by_one_replica_is_picked_up_by_the_other() -> None:
    async with secret_sources(2) as (clock, _, (one, other)):
        first = await one.current()
        clock.ahead = timedelta(days=70)
        renewed = await one.current()
        assert renewed[0] != first[0]
        assert renewed[1] == first[1]
        assert await other.current() == renewed


async def test_a_damaged_secret_is_replaced() -> None:
    async with secret_sources(1) as (_, client, (source,)):
        first = await source.current()
        broken = {"data": {"tls.crt": base64.b64encode(b"nonsense").decode()}}
        await client.patch("v1/Secret", "certs", broken)
        assert await source.current() != first


async def test_certificates_in_a_directory_are_reread_and_the_last_good_ones_kept(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = make_authority("cert-manager", now=now, lifetime=timedelta(days=1))
    source = DirectoryCertificates(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot read the webhook certificate .*tls\.crt: No such file"):
        await source.current()
    pairs = [
        issue_certificate(authority, ["127.0.0.1"], now=now, lifetime=timedelta(days=1)) for _ in range(2)
    ]
    for pair in pairs:
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)
        assert await source.current() == (pair, b"")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    assert (await source.current())[1] == authority.certificate
    (tmp_path / "tls.key").unlink()
    assert await source.current() == (pairs[1], authority.certificate)


async def test_a_rotated_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = make_authority("cert-manager", now=now, lifetime=timedelta(days=1))
    (tmp_path / "ca.crt").write_bytes(authority.certificate)

    def rotate() -> bytes:
        pair = issue_certificate(authority, ["127.0.0.1"], now=now, lifetime=timedelta(days=1))
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)
        return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())

    async def served(port: int) -> bytes:
        tls = client_context(ca=authority.certificate)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return certificate

    first = rotate()
    async with running(webhooks(AppValidator(), cert_dir=tmp_path)) as run:
        assert await served(run.server.port) == first
        second = rotate()
        await run.server.keep()
        assert await served(run.server.port) == second != first


async def test_a_standby_serves_as_soon_as_the_leader_has_created_the_secret() -> None:
    async with DevCluster(http=False, controllers=False) as cluster:
        leader = Client(InProcessTransport(cluster), field_manager="shop")

        def closed() -> float | None:
            raise WriteRefused("not the leader")

        standby = WebhookServer(webhooks(AppValidator()), leader.derive(before_write=closed), operator="shop")
        with pytest.raises(WriteRefused):
            await standby.keep()
        assert standby.port == 0
        first = WebhookServer(webhooks(AppValidator()), leader, operator="shop")
        await first.keep()
        await standby.keep()
        assert standby.port != 0
        await first.stop()
        await standby.stop()
