"""Certificates that the webhooks of a release depend on: authorities in their configuration, and mounted TLS Secrets."""

import asyncio
import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from cryptography import x509

from kapsa.fleet.domain.health.certificates import CertificateFacts
from kapsa.fleet.infrastructure.health.release_reader import DeployedRelease
from kapsa.fleet.infrastructure.health.resource_reader import CrdContent
from kapsa.fleet.infrastructure.health.webhook_prober import CONFIGURATIONS
from kapsa.fleet.infrastructure.health.workload_reader import WORKLOADS, NamespaceContent
from kapsa.runtime import Client, Forbidden, NotFound

__all__ = ["read_certificates"]

_GROUP = "admissionregistration.k8s.io/v1"
_MOST_SECRETS = 20
_LARGEST = 256 * 1024
"""Bytes of a bundle that are read. A real one has a few kilobytes."""


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str | None = None


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(msgspec.Struct, frozen=True):
    webhooks: tuple[_Webhook, ...] | None = None


class _TlsData(msgspec.Struct, frozen=True):
    """The part of a TLS Secret that is public. The key is never decoded."""

    certificate: str = msgspec.field(default="", name="tls.crt")


class _TlsSecret(msgspec.Struct, frozen=True):
    data: _TlsData | None = None


async def read_certificates(
    client: Client,
    release: DeployedRelease,
    crds: Sequence[CrdContent],
    contents: Sequence[NamespaceContent],
) -> tuple[CertificateFacts, ...]:
    """Return the certificates that can be read; none for a release without webhooks."""
    authorities = [*await _configured(client, release), *_converting(crds)]
    if not authorities and not release.of_kind(*CONFIGURATIONS):
        return ()
    names = sorted(_mounted(release, contents))[:_MOST_SECRETS]
    secrets = await asyncio.gather(*(_secret(client, *name) for name in names))
    # An authority is good as long as one certificate of its bundle is; a chain as long as all of it are.
    trusted = [_facts(source, max(_expiries(text), default=None)) for source, text in authorities]
    served = [_facts(source, min(_expiries(text), default=None), certain=False) for source, text in secrets]
    return tuple(each for each in (*trusted, *served) if each is not None)


async def _configured(client: Client, release: DeployedRelease) -> list[tuple[str, str]]:
    """Return the authorities of admission webhooks."""
    bundles: list[tuple[str, str]] = []
    for each in release.of_kind(*CONFIGURATIONS):
        try:
            live = await client.get(f"{_GROUP}/{each.kind}", each.name, into=_Configuration)
        except NotFound:
            continue
        bundles += [
            (f"caBundle of webhook {webhook.name}", webhook.client_config.ca_bundle)
            for webhook in live.webhooks or ()
            if webhook.client_config.ca_bundle
        ]
    return bundles


def _converting(crds: Iterable[CrdContent]) -> list[tuple[str, str]]:
    """Return the authorities of conversion webhooks."""
    bundles: list[tuple[str, str]] = []
    for crd in crds:
        webhook = (crd.spec.conversion or {}).get("webhook") if crd.converts else None
        bundle = ((webhook or {}).get("clientConfig") or {}).get("caBundle")
        if isinstance(bundle, str):
            bundles.append((f"caBundle of the conversion of {crd.metadata.name}", bundle))
    return bundles


def _mounted(release: DeployedRelease, contents: Sequence[NamespaceContent]) -> set[tuple[str, str]]:
    """Return namespace and name of the Secrets that the controllers of a release mount."""
    mounted: set[tuple[str, str]] = set()
    for each in release.of_kind(*WORKLOADS):
        for content in contents:
            manifest = content.workloads.get((each.kind, each.name))
            if manifest is not None and manifest["metadata"].get("namespace") == each.namespace:
                mounted |= {(each.namespace, name) for name in _secret_names(manifest)}
    return mounted


def _secret_names(manifest: Mapping[str, Any]) -> set[str]:
    template = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    names: set[str] = set()
    for volume in template.get("volumes") or ():
        names.add(str((volume.get("secret") or {}).get("secretName", "")))
        for source in (volume.get("projected") or {}).get("sources") or ():
            names.add(str((source.get("secret") or {}).get("name", "")))
    return names - {""}


async def _secret(client: Client, namespace: str, name: str) -> tuple[str, str]:
    """Return the certificate of a Secret; empty if it has none, or may not be read."""
    source = f"Secret {namespace}/{name}"
    try:
        secret = await client.get("v1/Secret", name, namespace=namespace, into=_TlsSecret)
    except (NotFound, Forbidden):
        return source, ""
    return source, secret.data.certificate if secret.data is not None else ""


def _expiries(text: str) -> list[datetime]:
    """Return the ends of all certificates in a bundle; none if it is not valid, which the probes show."""
    try:
        content = base64.b64decode(text[:_LARGEST], validate=True)
        return [each.not_valid_after_utc for each in x509.load_pem_x509_certificates(content)]
    except (binascii.Error, ValueError):
        return []


def _facts(source: str, expires_at: datetime | None, *, certain: bool = True) -> CertificateFacts | None:
    return None if expires_at is None else CertificateFacts(source, expires_at, certain)
