"""The types of the variables that expressions of admission policies see, as kube-apiserver declares them."""

from __future__ import annotations

from collections.abc import Mapping

from kapsa.schemas.cel.declared_types import DeclaredType, Field
from kapsa.schemas.cel.language import types
from kapsa.schemas.cel.language.types import Type, parse_type

__all__ = ["AUTHORIZER", "NAMESPACE", "REQUEST", "RESOURCE_CHECK", "variables_type"]

AUTHORIZER = parse_type("kubernetes.authorization.Authorizer")
RESOURCE_CHECK = parse_type("kubernetes.authorization.ResourceCheck")
_TEXTS = types.list_of(types.STRING)
_LABELS = types.map_of(types.STRING, types.STRING)


def _object(name: str, fields: Mapping[str, Type]) -> Type:
    declared = {field: Field(field, DeclaredType(scalar=type_)) for field, type_ in fields.items()}
    return types.struct(name, DeclaredType(fields=declared))


_KIND = _object("kubernetes.GroupVersionKind", dict.fromkeys(("group", "version", "kind"), types.STRING))
_RESOURCE = _object(
    "kubernetes.GroupVersionResource", dict.fromkeys(("group", "version", "resource"), types.STRING)
)
_USER = _object(
    "kubernetes.UserInfo",
    {
        "username": types.STRING,
        "uid": types.STRING,
        "groups": _TEXTS,
        "extra": types.map_of(types.STRING, _TEXTS),
    },
)
REQUEST = _object(
    "kubernetes.AdmissionRequest",
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "userInfo": _USER,
        "dryRun": types.BOOL,
        "options": types.DYN,
        **dict.fromkeys(
            ("subResource", "requestSubResource", "name", "namespace", "operation"), types.STRING
        ),
    },
)
_METADATA = _object(
    "kubernetes.NamespaceMetadata",
    {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), types.STRING),
        **dict.fromkeys(("labels", "annotations"), _LABELS),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), types.TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), types.INT),
        "finalizers": _TEXTS,
    },
)
_CONDITION = _object(
    "kubernetes.NamespaceCondition",
    {
        **dict.fromkeys(("status", "type", "message", "reason"), types.STRING),
        "lastTransitionTime": types.TIMESTAMP,
    },
)
NAMESPACE = _object(
    "kubernetes.Namespace",
    {
        "metadata": _METADATA,
        "spec": _object("kubernetes.NamespaceSpec", {"finalizers": _TEXTS}),
        "status": _object(
            "kubernetes.NamespaceStatus", {"conditions": types.list_of(_CONDITION), "phase": types.STRING}
        ),
    },
)


def variables_type(variables: Mapping[str, Type]) -> Type:
    """Return the type of `variables` with these variables."""
    return _object("kubernetes.variables", {name: _plain(type_) for name, type_ in variables.items()})


def _plain(type_: Type) -> Type:
    """Return the type that other expressions see of a variable: objects and opaque values become dyn."""
    if type_.kind in ("list", "map"):
        return Type(type_.kind, type_.name, tuple(map(_plain, type_.params)))
    return types.DYN if type_.kind in ("struct", "opaque", "type", "error") else type_
