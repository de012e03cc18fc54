"""Helm charts in OCI registries: one manifest for each version, whose layer is the archive of the chart.

A tag is the version of the chart. Tags cannot contain `+`, so helm writes `_` instead.
"""

from __future__ import annotations

import msgspec

from kapsa.adapters.errors import LimitExceeded, Refused
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.oci.registry import ImageRegistry

__all__ = ["CHART_CONFIG", "CHART_LAYER", "chart_reference", "chart_versions", "pull_chart"]

CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CHART_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_EARLY_LAYER = "application/tar+gzip"
"""The media type of layers that helm wrote before version 3.7."""
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class _Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    digest: str
    media_type: str = ""
    size: int = 0


class _ChartManifest(msgspec.Struct, frozen=True):
    config: _Descriptor
    layers: tuple[_Descriptor, ...] = ()


def chart_reference(text: str) -> ImageReference:
    """Return the repository of a chart: `oci://registry.example.com/charts/app`, without a tag.

    Raises `Refused` when it is not one.
    """
    scheme, separator, name = text.partition("://")
    if not separator or scheme != "oci":
        raise Refused(f"{text[:120]!r} must start with oci://")
    if "@" in name.partition("/")[0]:
        raise Refused(
            "the address of a chart must not contain a user name or password",
            hint="Pass the credentials apart",
        )
    reference = ImageReference.parse(name.rstrip("/"))
    if reference.tag or reference.digest:
        raise Refused(f"{text[:120]!r} must not have a tag or a digest: the version is given apart")
    return reference


async def chart_versions(registry: ImageRegistry, chart: ImageReference) -> list[str]:
    """Return the tags of a chart as versions. Tags that are not versions are among them.

    Raises the errors of `ImageRegistry.tags`.
    """
    return [tag.replace("_", "+") for tag in await registry.tags(chart)]


async def pull_chart(registry: ImageRegistry, chart: ImageReference, version: str, *, limit: int) -> bytes:
    """Return the archive of one version of a chart, verified against the digest in its manifest.

    Raises `Refused` when the tag is not a chart, `LimitExceeded` when the archive is too large, and the errors
    of `ImageRegistry`.
    """
    tagged = chart.with_tag(version.replace("+", "_"))
    layer = _layer(await registry.manifest(tagged, media_types=_MANIFEST), str(tagged))
    if layer.size > limit:
        raise LimitExceeded(f"the chart {tagged} is larger than {limit // (1024 * 1024)} MB")
    return await registry.blob(tagged, layer.digest, limit=limit)


def _layer(content: bytes, what: str) -> _Descriptor:
    try:
        manifest = msgspec.json.decode(content, type=_ChartManifest)
    except (msgspec.DecodeError, RecursionError):
        raise Refused(f"{what} is not a chart: its manifest cannot be read", reason="NoChart") from None
    if manifest.config.media_type != CHART_CONFIG:
        raise Refused(
            f"{what} is not a Helm chart: the type of its configuration is {manifest.config.media_type[:120]!r}",
            reason="NoChart",
        )
    layers = [layer for layer in manifest.layers if layer.media_type in (CHART_LAYER, _EARLY_LAYER)]
    if len(layers) != 1:
        raise Refused(f"{what} has {len(layers)} layers with a chart, not one", reason="NoChart")
    return layers[0]
