"""The parameters of a policy: the objects that a binding refers to."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.version_conversion import from_storage
from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo

__all__ = ["ParameterError", "parameter_kind", "parameters_of"]

Object = dict[str, Any]


class ParameterError(Exception):
    """A binding whose parameters cannot be read."""


def parameter_kind(backend: Backend, kind: Object | None) -> ResourceInfo | None:
    """Return the resource of a policy's parameters. Raises ParameterError for a kind that does not exist."""
    if kind is None:
        return None
    group, _, version = kind["apiVersion"].rpartition("/")
    info = backend.registry.find_kind(group, version, kind["kind"])
    if info is None:
        what = f"{kind['apiVersion']}, Kind={kind['kind']}"
        raise ParameterError(f"failed to find resource referenced by paramKind: '{what}'")
    return info


def parameters_of(
    backend: Backend, info: ResourceInfo | None, reference: Object | None, namespace: str
) -> list[Object | None]:
    """Return the parameters to evaluate a policy with, one evaluation for each; None is one without parameters.

    Raises ParameterError when they are missing and must not be.
    """
    if info is None or reference is None:
        return [None]
    where = _namespace(info, reference, namespace)
    collection = backend.collection(info)
    stored = collection.current(f"{where}/" if where else "")
    if reference.get("name"):
        chosen = [each for each in stored if each.name == reference["name"]]
    else:
        chosen = [each for each in stored if matches(reference.get("selector") or {}, each.labels)]
    if not chosen and reference.get("parameterNotFoundAction") == "Deny":
        raise ParameterError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [from_storage(info, each) for each in chosen]


def _namespace(info: ResourceInfo, reference: Object, namespace: str) -> str:
    given = reference.get("namespace") or ""
    if not info.namespaced:
        if given:
            raise ParameterError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return ""
    if not given and not namespace:
        raise ParameterError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    return given or namespace
