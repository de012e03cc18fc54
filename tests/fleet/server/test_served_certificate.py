"""The certificate of the API, by what clients receive."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from structlog.testing import capture_logs

from kapsa.fleet.server.served_certificate import ServedCertificate

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_PLAIN = serialization.NoEncryption()


class Pair:
    """A certificate and its key in files."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"

    def write(
        self, key: PrivateKey, serial: int, encryption: serialization.KeySerializationEncryption = _PLAIN
    ) -> None:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder(name, name, key.public_key(), serial)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
        )
        pem = serialization.Encoding.PEM
        self.certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
        self.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption))

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


async def received(server: asyncio.Server, name: str | None = None) -> int:
    """Return the serial number of the certificate that a client receives, with or without a server name."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name or "")
    document = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(document).serial_number


@cache
def keys() -> list[PrivateKey]:
    """Return a key of each type, made once: an RSA key takes a moment."""
    return [ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)]


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["ec-to-rsa", "rsa-to-ec"])
async def test_clients_receive_a_renewed_certificate_with_another_type_of_key(
    tmp_path: Path, order: slice
) -> None:
    pair = Pair(tmp_path)
    first, second = keys()[order]
    pair.write(first, 1)
    context = pair.context()
    served = ServedCertificate(context, pair.certificate, pair.key)
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        assert await received(server) == 1
        pair.write(second, 2)
        assert await served.reload()
        assert [await received(server), await received(server, "localhost")] == [2, 2]
        pair.write(first, 3)
        assert await served.reload()
        assert [await received(server), await received(server, "localhost")] == [3, 3]


async def test_an_encrypted_key_is_refused_without_a_question_and_the_certificate_before_stays(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path)
    key = ec.generate_private_key(ec.SECP256R1())
    pair.write(key, 1)
    context = pair.context()
    served = ServedCertificate(context, pair.certificate, pair.key)
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        pair.write(key, 2, serialization.BestAvailableEncryption(b"word"))
        with capture_logs() as logs:
            assert not await served.reload()
        assert logs[0]["error"] == "the key is encrypted: store it without a password"
        assert await received(server) == 1
