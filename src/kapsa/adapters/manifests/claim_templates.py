"""Claim templates: the PersistentVolumeClaims that workloads of all kinds create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kapsa.adapters.manifests.pod_templates import entries, pod_spec

__all__ = ["claim_templates"]


def claim_templates(manifest: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the template of each claim that an object or one of its pods creates."""
    spec = manifest.get("spec")
    if manifest.get("kind") == "StatefulSet" and isinstance(spec, dict):
        for template in entries(spec, "volumeClaimTemplates"):
            yield f"volumeClaimTemplates[{_name(template.get('metadata'))}].", template
    for volume in entries(pod_spec(manifest) or {}, "volumes"):
        ephemeral = volume.get("ephemeral")
        claim = ephemeral.get("volumeClaimTemplate") if isinstance(ephemeral, dict) else None
        if isinstance(claim, dict):
            yield f"volumes[{_name(volume)}].ephemeral.volumeClaimTemplate.", claim


def _name(part: Any) -> str:
    return str(part.get("name", "?")) if isinstance(part, dict) else "?"
