"""The releases that helm has stored in a cluster: one Secret for each revision, read within limits.

The Secret holds JSON in gzip in base64. Anybody who may write Secrets in a namespace can write one, so its size
is limited before and while it is unpacked.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.adapters.errors import LimitExceeded, Refused
from kapsa.adapters.manifests.yaml_documents import YamlLimits

__all__ = ["MANIFEST_LIMITS", "RELEASE_SECRET", "SERVER_SIDE", "HelmRelease", "read_release"]

RELEASE_SECRET = "helm.sh/release.v1"  # noqa: S105 - the type of a Secret
SERVER_SIDE = "ssa"
"""The apply method of a release whose objects were applied by server-side apply."""
_MIB = 1024 * 1024
_PACKED_LIMIT = 2 * _MIB
_UNPACKED_LIMIT = 24 * _MIB
MANIFEST_LIMITS = YamlLimits(bytes=_UNPACKED_LIMIT, documents=5000, nodes=1_000_000)
"""The largest manifest of a release, wherever one is read: what can be planned must be readable afterwards."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    version: str = ""
    app_version: str = ""


class _Chart(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Info(msgspec.Struct, frozen=True):
    status: str = "unknown"
    description: str = ""
    last_deployed: str = ""


class _Stored(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    version: int = 0
    info: _Info = _Info()
    chart: _Chart = _Chart()
    manifest: str = ""
    config: dict[str, Any] | None = None
    apply_method: str = ""


# msgspec prepares a type on its first use, without a lock, and releases are read in threads: two first uses at the
# same moment would crash the process.
_DECODER = msgspec.json.Decoder(_Stored)


class HelmRelease(msgspec.Struct, frozen=True):
    """One revision of a release."""

    name: str
    namespace: str
    revision: int
    status: str
    """Helm's own word: `deployed`, `failed`, `pending-upgrade` and others."""
    chart: str
    chart_version: str
    app_version: str = ""
    description: str = ""
    last_deployed: str = ""
    manifest: str = ""
    values: dict[str, Any] = {}
    """The values that the release was installed with. They may be secret."""
    labels: dict[str, str] = {}
    apply_method: str = ""
    """`ssa` or `csa`: how helm applied the objects. Empty for helm 3, which had one way: `csa`."""

    def __repr__(self) -> str:
        return f"HelmRelease({self.namespace}/{self.name} {self.revision}: {self.chart} {self.chart_version}, {self.status})"


def read_release(secret: Mapping[str, Any]) -> HelmRelease:
    """Return the release in a Secret of helm.

    Raises `Refused` if it is not one, and `LimitExceeded` if it is too large.
    """
    metadata = secret.get("metadata") or {}
    what = f"the Secret {metadata.get('namespace', '')}/{metadata.get('name', '')}"
    text = (secret.get("data") or {}).get("release")
    if not isinstance(text, str):
        raise Refused(f"{what} is not a Helm release")
    if len(text) > 2 * _PACKED_LIMIT:
        raise LimitExceeded(f"the release in {what} is larger than {2 * _PACKED_LIMIT // _MIB} MB")
    try:
        stored = _DECODER.decode(_unpack(base64.b64decode(base64.b64decode(text)), what))
    except (binascii.Error, msgspec.DecodeError, zlib.error, RecursionError, ValueError):
        raise Refused(f"{what} is not a Helm release: its content cannot be read") from None
    return HelmRelease(
        name=stored.name,
        # The namespace of the Secret is the one that its writer may write to; the content could name any.
        namespace=str(metadata.get("namespace") or stored.namespace),
        revision=stored.version,
        status=stored.info.status,
        chart=stored.chart.metadata.name,
        chart_version=stored.chart.metadata.version,
        app_version=stored.chart.metadata.app_version,
        description=stored.info.description,
        last_deployed=stored.info.last_deployed,
        manifest=stored.manifest,
        values=stored.config or {},
        labels={str(key): str(value) for key, value in (metadata.get("labels") or {}).items()},
        apply_method=stored.apply_method,
    )


def _unpack(packed: bytes, what: str) -> bytes:
    if not packed.startswith(b"\x1f\x8b"):
        return packed  # helm wrote releases without gzip once
    reader = zlib.decompressobj(wbits=31)
    unpacked = reader.decompress(packed, _UNPACKED_LIMIT)
    if reader.unconsumed_tail:
        raise LimitExceeded(f"the release in {what} unpacks to more than {_UNPACKED_LIMIT // _MIB} MB")
    return unpacked
