"""The order in which Kubernetes prefers the versions of a group."""

from __future__ import annotations

import re

__all__ = ["version_priority"]

_KUBE_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return a key that sorts versions as Kubernetes prefers them: v2, v1, v1beta2, v1alpha1, then other names."""
    matched = _KUBE_VERSION.fullmatch(version)
    if matched is None:
        return 1, 0, 0, version
    return 0, -_STAGES[matched[2]], -int(matched[1]) * 1000 - int(matched[3] or 0), ""
