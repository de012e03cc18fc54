"""Names of the resources that quotas and limits are about."""

from __future__ import annotations

__all__ = ["CONTAINER_RESOURCES", "COUNTED_RESOURCES", "QUOTA_RESOURCES", "STANDARD_RESOURCES"]

CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""Resources that a container can request."""
COUNTED_RESOURCES = (
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
)
"""Resources that a quota counts in whole numbers."""
_BY_USE = (f"{use}.{name}" for use in ("requests", "limits") for name in CONTAINER_RESOURCES)
QUOTA_RESOURCES = frozenset({*CONTAINER_RESOURCES, *COUNTED_RESOURCES, *_BY_USE, "requests.storage"})
STANDARD_RESOURCES = QUOTA_RESOURCES | {"storage"}
