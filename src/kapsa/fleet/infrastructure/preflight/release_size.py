"""The size of the Secret in which Helm stores a release: chart, values and manifest, packed."""

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from kapsa.adapters.helm.chart_archive import read_archive
from kapsa.fleet.domain.rollout.plans import PreflightProblem

__all__ = ["LARGEST_RELEASE", "check_release_size", "release_size"]

LARGEST_RELEASE = 1024 * 1024
"""The most bytes that the API server accepts in a Secret."""
_RECORD = 1000
"""Bytes of a record besides its content: names, times and notes."""


def release_size(chart: bytes, values: Mapping[str, Any], manifest: bytes) -> int:
    """Return the bytes that a release takes in its Secret, within a few percent.

    Helm writes JSON with each file in base64, compresses it, and encodes the result in base64. Subcharts are left out.
    """
    files = [(name, content) for name, content in read_archive(chart).files.items() if not _is_subchart(name)]
    document = {
        "chart": [{"name": name, "data": base64.b64encode(content).decode()} for name, content in files],
        "config": values,
        "manifest": manifest.decode("utf-8", "replace"),
    }
    packed = gzip.compress(json.dumps(document, default=str).encode(), compresslevel=9)
    return 4 * ((len(packed) + 2) // 3) + _RECORD


def check_release_size(
    chart: bytes, values: Mapping[str, Any], manifest: bytes
) -> tuple[PreflightProblem, ...]:
    """Return a problem if Helm could not store the release."""
    size = release_size(chart, values, manifest)
    if size <= LARGEST_RELEASE:
        return ()
    message = (
        f"the release takes {size // 1024} KiB, and a Secret holds {LARGEST_RELEASE // 1024} KiB: "
        "remove files from the chart that are not templates, or split it"
    )
    return (PreflightProblem("ReleaseTooLarge", message),)


def _is_subchart(name: str) -> bool:
    return PurePosixPath(name).parts[0] == "charts"
