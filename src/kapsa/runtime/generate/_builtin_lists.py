"""The list types of Kubernetes' own types, which the Python models generated from them do not carry.

A CRD that embeds a pod template needs them: without the keys of `containers`, server-side apply replaces the
whole list, and two managers cannot each have a container in it. Facts of Kubernetes' OpenAPI document.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.runtime.resources.model import Field

__all__ = ["builtin_default", "builtin_list"]

_PACKAGE = "lightkube.models."
_CONTAINER_LISTS = {
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
}
_KEYS: dict[str, dict[str, tuple[str, ...]]] = {
    "Container": _CONTAINER_LISTS,
    "EphemeralContainer": _CONTAINER_LISTS,
    "ObjectMeta": {"ownerReferences": ("uid",)},
    "PodSpec": {
        "containers": ("name",),
        "ephemeralContainers": ("name",),
        "hostAliases": ("ip",),
        "imagePullSecrets": ("name",),
        "initContainers": ("name",),
        "resourceClaims": ("name",),
        "schedulingGates": ("name",),
        "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
        "volumes": ("name",),
    },
    "ResourceRequirements": {"claims": ("name",)},
    "ServiceSpec": {"ports": ("port", "protocol")},
}
_SETS = {
    ("ContainerRestartRuleOnExitCodes", "values"),
    ("ObjectMeta", "finalizers"),
    ("PodFailurePolicyOnExitCodesRequirement", "values"),
}
_DEFAULTS: dict[tuple[str, str], Any] = {
    ("ContainerPort", "protocol"): "TCP",
    ("LocalObjectReference", "name"): "",
    ("ServicePort", "protocol"): "TCP",
}
"""The defaults of optional fields that are keys: the API server wants a key to be required or to have one."""


def builtin_list(struct: type, name: str) -> msgspec.Meta | None:
    """Return the list type of a field of Kubernetes' own types, by its wire name; None if it has none."""
    if not struct.__module__.startswith(_PACKAGE):
        return None
    if keys := _KEYS.get(struct.__name__, {}).get(name):
        return Field(map_keys=keys)
    return Field(list_type="set") if (struct.__name__, name) in _SETS else None


def builtin_default(struct: type, name: str) -> Any:
    """Return the default of a field that is a key of a list; None if it is not, or has none."""
    return _DEFAULTS.get((struct.__name__, name)) if struct.__module__.startswith(_PACKAGE) else None
