"""A cluster's certificate authority, which issues server and client certificates, and its signing key."""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = datetime.timedelta(days=365)
_SHORTEST_SECONDS = 600
_BACKDATE = datetime.timedelta(minutes=5)
_CLOCK_SKEW = datetime.timedelta(hours=1)
_RENEWAL = datetime.timedelta(days=30)


class PemPair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write `name.crt` and `name.key`; the key is readable by its owner only."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_private(key, self.key)
        return certificate, key


class Authority:
    """A certificate authority for one cluster. All keys are P-256, which takes microseconds to generate."""

    def __init__(self, name: str = "kapsa-devcluster", pair: PemPair | None = None) -> None:
        """Make a new authority, or continue with the certificate and key of an earlier one.

        Raises ValueError for a pair that is not an authority's.
        """
        self._key = ec.generate_private_key(ec.SECP256R1()) if pair is None else _private_key(pair.key)
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        if pair is None:
            self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
            certificate = (
                self._builder(self._name, self._key.public_key())
                .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                .add_extension(_key_usage(signs_certificates=True), critical=True)
                .add_extension(self._identifier, critical=False)
                .sign(self._key, hashes.SHA256())
            )
        else:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            if certificate.public_key() != self._key.public_key():
                raise ValueError("the certificate belongs to another key")
            self._name = certificate.subject
        self._expires = certificate.not_valid_after_utc
        self.pair = PemPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(self._key))

    @property
    def expires_soon(self) -> bool:
        """True if less than a month is left."""
        return self._expires - datetime.datetime.now(datetime.UTC) < _RENEWAL

    def issue_server(self, hosts: Sequence[str]) -> PemPair:
        """Issue a server certificate for DNS names and IP addresses."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(_subject(hosts[0]), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_client(self, user: str, groups: Sequence[str] = ()) -> PemPair:
        """Issue a client certificate that authenticates as this user in these groups."""
        return self._issue(_subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def sign_request(self, request: bytes, seconds: int | None = None) -> bytes:
        """Issue a client certificate for a PKCS#10 request, both PEM, for at most a year.

        The key and the subject are those of the request. Nothing else of it is trusted.
        """
        parsed = x509.load_pem_x509_csr(request)
        now = datetime.datetime.now(datetime.UTC)
        lifetime = (
            _VALIDITY if seconds is None else datetime.timedelta(seconds=max(seconds, _SHORTEST_SECONDS))
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(parsed.subject)
            .issuer_name(self._name)
            .public_key(parsed.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATE)
            .not_valid_after(min(now + lifetime, self._expires))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier),
                critical=False,
            )
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None
    ) -> PemPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier),
                critical=False,
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return PemPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _VALIDITY)
        )


def signing_key() -> PemPair:
    """Generate a key pair for service account tokens; `certificate` holds the bare public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return PemPair(public, _pem(key))


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can ever read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)


def kubeconfig(
    url: str, authority: bytes, client: PemPair, *, name: str = "devcluster", user: str = "admin"
) -> dict[str, object]:
    """Return a kubeconfig with inline certificates, so that it needs no other file."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": url, "certificate-authority-data": _base64(authority)}},
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _base64(client.certificate),
                    "client-key-data": _base64(client.key),
                },
            },
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
        "current-context": name,
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not an elliptic one")  # noqa: TRY004  of a file, not of a caller
    return key


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _subject(user: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
