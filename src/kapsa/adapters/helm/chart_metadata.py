"""The metadata of a chart: its Chart.yaml, checked as strictly as a registry of versions needs it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kapsa.adapters.errors import Refused, RenderFailed
from kapsa.adapters.manifests.yaml_documents import YamlLimits, load_documents

__all__ = ["ChartMetadata", "is_semantic_version", "read_metadata"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NAME_LIMIT = 250
_LIMITS = YamlLimits(bytes=256 * 1024, documents=1, depth=20, nodes=20_000)
_NUMBER = r"(?:0|[1-9]\d*)"
_PRERELEASE = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"v?{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_VERSION_LIMIT = 128


class ChartMetadata(msgspec.Struct, frozen=True):
    """The description of a chart in its Chart.yaml."""

    name: str
    version: str
    """A semantic version, with a leading `v` if the chart has one."""
    app_version: str = ""
    kube_version: str = ""
    """The constraint on the version of Kubernetes, such as `>= 1.30`."""
    description: str = ""
    library: bool = False
    """True for a chart that only other charts can use."""


def is_semantic_version(text: str) -> bool:
    """Return whether this is a version by semver.org. A leading `v` is accepted, as many charts have one."""
    return len(text) <= _VERSION_LIMIT and _VERSION.fullmatch(text) is not None


def read_metadata(content: bytes) -> ChartMetadata:
    """Return the metadata in a Chart.yaml.

    Raises `Refused` that names the field if it is not the metadata of a chart.
    """
    try:
        documents = load_documents(content.removeprefix(b"\xef\xbb\xbf"), "Chart.yaml", _LIMITS)
    except RenderFailed as error:
        raise Refused(str(error), reason="NoChart") from None
    chart = documents[0] if documents else None
    if not isinstance(chart, dict):
        raise Refused("Chart.yaml is not a mapping", reason="NoChart")
    if chart.get("apiVersion") not in ("v1", "v2"):
        raise Refused(
            f"apiVersion in Chart.yaml must be v1 or v2, got {_shown(chart.get('apiVersion'))}",
            reason="NoChart",
        )
    return ChartMetadata(
        name=_name(chart.get("name")),
        version=_version(chart.get("version")),
        app_version=_text(chart.get("appVersion")),
        kube_version=_text(chart.get("kubeVersion")),
        description=_text(chart.get("description")),
        library=chart.get("type") == "library",
    )


def _name(name: Any) -> str:
    if not isinstance(name, str) or len(name) > _NAME_LIMIT or not _NAME.fullmatch(name):
        raise Refused(
            f"name in Chart.yaml must be letters, digits, dots, dashes and underscores, got {_shown(name)}",
            reason="NoChart",
        )
    return name


def _version(version: Any) -> str:
    if not isinstance(version, str) or not is_semantic_version(version):
        raise Refused(
            f"version in Chart.yaml must be a semantic version such as 1.4.0, got {_shown(version)}",
            reason="NoVersion",
        )
    return version


def _text(value: Any) -> str:
    """Return an optional text. Numbers are common: `appVersion: 1.14`."""
    return str(value)[:1000] if isinstance(value, (str, int, float)) else ""


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:80]
