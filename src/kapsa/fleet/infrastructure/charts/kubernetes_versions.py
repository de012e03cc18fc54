"""A version of Kubernetes that a chart accepts, for a chart that excludes the one that helm assumes.

Constraints have a grammar of their own (`>=1.28 <1.32 || ~1.34`). Helm decides about it here, too: versions next to
those that the constraint names are offered to it, with a chart that has nothing but the constraint.
"""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kapsa.adapters.errors import Refused, RenderFailed
from kapsa.adapters.helm.renderer import render_manifest
from kapsa.adapters.process.limited_process import ProcessLimits

__all__ = ["UNSUPPORTED", "accepted_version", "candidate_versions"]

UNSUPPORTED = "which is incompatible with Kubernetes"
"""Helm's words for a chart whose `kubeVersion` leaves the cluster out."""
_NAMED = re.compile(r"(?<![\w.-])v?(\d{1,3})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?")
_MOST_NAMED = 6
"""Versions of a constraint that are looked at, from left to right. Each costs up to four short runs of helm."""

_Version = tuple[int, int, int]


async def accepted_version(constraint: str, limits: ProcessLimits) -> str:
    """Return a version that satisfies a constraint; empty if the one that helm assumes does, or there is none.

    Raises `Refused` if no version that the constraint names, and none next to one, satisfies it.
    """
    if not constraint or await _accepts(constraint, "", limits):
        return ""
    for candidate in candidate_versions(constraint):
        if await _accepts(constraint, candidate, limits):
            return candidate
    raise Refused(
        f"the chart needs Kubernetes {constraint!r}, and no version of Kubernetes satisfies that",
        hint="Correct kubeVersion in Chart.yaml",
    )


def candidate_versions(constraint: str) -> list[str]:
    """Return the versions that a constraint names and those next to them, the lowest first."""
    named = [
        (int(major), int(minor or 0), int(patch or 0))
        for major, minor, patch in _NAMED.findall(constraint)[:_MOST_NAMED]
    ]
    candidates = sorted({each for version in named for each in _near(version)})
    return [f"{major}.{minor}.{patch}" for major, minor, patch in candidates]


def _near(version: _Version) -> Iterable[_Version]:
    """Yield a version, the patch and the minor version after it, and the minor version before it."""
    major, minor, patch = version
    yield version
    yield major, minor, patch + 1
    yield major, minor + 1, 0
    if minor:
        yield major, minor - 1, 0


async def _accepts(constraint: str, version: str, limits: ProcessLimits) -> bool:
    """Return whether helm renders a chart with this constraint for a version; any other failure is the chart's own."""
    with tempfile.TemporaryDirectory(prefix="kapsa-chart-") as private:
        metadata = {"apiVersion": "v2", "name": "probe", "version": "1.0.0", "kubeVersion": constraint}
        (Path(private) / "Chart.yaml").write_bytes(msgspec.json.encode(metadata))
        try:
            await render_manifest(
                Path(private),
                {},
                release="probe",
                namespace="default",
                limits=limits,
                kube_version=version,
            )
        except RenderFailed as error:
            if UNSUPPORTED not in str(error):
                raise
            return False
    return True
