"""Sources of serving certificates: a mounted directory, a Secret that the operator maintains, or this process."""

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

from kapsa.runtime.client.client import Client
from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import AlreadyExists, ConfigError, Conflict, NotFound
from kapsa.runtime.resources.kind import Manifest
from kapsa.runtime.webhooks.certificates import CertificatePair, CertificateState, Lifetimes, advance

__all__ = ["CertificateSource", "DirectoryCertificates", "ProcessCertificates", "SecretCertificates"]

_log = structlog.get_logger(__name__)


class CertificateSource(Protocol):
    """A source of the certificate to serve with and the CA bundle that clients must trust."""

    async def current(self) -> tuple[CertificatePair, bytes]:
        """Return the pair to serve with and the CA bundle as PEM.

        The bundle is empty if another party publishes it.
        """
        ...


class DirectoryCertificates:
    """The files `tls.crt`, `tls.key` and optionally `ca.crt` of a directory, as cert-manager mounts them.

    They are read each time, since they are rotated in place.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._last: tuple[CertificatePair, bytes] | None = None

    async def current(self) -> tuple[CertificatePair, bytes]:
        try:
            current = self._read()
        except OSError as error:
            if self._last is None:
                raise ConfigError(
                    f"cannot read the webhook certificate {error.filename}: {error.strerror}"
                ) from error
            _log.warning("cannot read webhook certificates, keeping the previous ones", error=str(error))
            return self._last
        self._last = current
        return current

    def _read(self) -> tuple[CertificatePair, bytes]:
        authority = self._directory / "ca.crt"
        pair = CertificatePair(
            (self._directory / "tls.crt").read_bytes(), (self._directory / "tls.key").read_bytes()
        )
        return pair, authority.read_bytes() if authority.exists() else b""


class ProcessCertificates:
    """Certificates that this process creates for itself and never stores.

    For webhooks served outside the cluster for a while: the Secret belongs to the replicas inside.
    """

    def __init__(self, clock: Clock, *, hosts: Sequence[str], lifetimes: Lifetimes | None = None) -> None:
        self._clock = clock
        self._hosts = tuple(hosts)
        self._lifetimes = lifetimes
        self._state: CertificateState | None = None

    async def current(self) -> tuple[CertificatePair, bytes]:
        self._state = advance(self._state, self._hosts, self._clock.now(), self._lifetimes)
        return self._state.serving, self._state.bundle


class SecretCertificates:
    """Certificates created by the operator, shared by its replicas through a Secret, and rotated in time.

    The Secret's resourceVersion decides between replicas that rotate at once: the first wins, the others use
    its result.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        hosts: Sequence[str],
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._hosts = tuple(hosts)
        self._lifetimes = lifetimes

    async def current(self) -> tuple[CertificatePair, bytes]:
        for _ in range(5):
            try:
                state = await self._settle()
            except (Conflict, AlreadyExists):
                continue  # another replica was first: use its result
            return state.serving, state.bundle
        raise ConfigError(
            f"Secret {self._namespace}/{self._name} keeps changing: check that no other operator uses the same name"
        )

    async def _settle(self) -> CertificateState:
        try:
            secret = await self._client.get("v1/Secret", self._name, namespace=self._namespace)
        except NotFound:
            secret = None
        before = _read_state(secret) if secret is not None else None
        after = advance(before, self._hosts, self._client.clock.now(), self._lifetimes)
        if after is before:
            return after
        manifest = self._manifest(after)
        if secret is None:
            await self._client.create(manifest)
        else:
            manifest["metadata"] = {**secret["metadata"]}
            await self._client.replace(manifest)
        _log.info("webhook certificates created", secret=f"{self._namespace}/{self._name}")
        return after

    def _manifest(self, state: CertificateState) -> Manifest:
        content = {
            "ca.crt": state.authority.certificate,
            "ca.key": state.authority.key,
            "previous-ca.crt": state.previous,
            "tls.crt": state.serving.certificate,
            "tls.key": state.serving.key,
        }
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {name: base64.b64encode(value).decode() for name, value in content.items()},
        }


def _read_state(secret: Manifest) -> CertificateState | None:
    """Return the state in a Secret. None, to start from scratch, if it is empty or damaged."""
    data = secret.get("data") or {}
    try:
        part = {name: base64.b64decode(value, validate=True) for name, value in data.items()}
        state = CertificateState(
            authority=CertificatePair(part["ca.crt"], part["ca.key"]),
            serving=CertificatePair(part["tls.crt"], part["tls.key"]),
            previous=part.get("previous-ca.crt", b""),
        )
        state.check()
    except (KeyError, binascii.Error, ValueError):
        return None
    return state
