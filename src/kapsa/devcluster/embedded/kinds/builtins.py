"""The built-in kinds as resources of the registry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from kapsa.devcluster.embedded.kinds.definitions import BuiltinGroup, BuiltinResource, definitions, load
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, Subresource

__all__ = ["builtin_resources", "definition_name"]

_PACKAGES = {
    "": "io.k8s.api.core",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "apiregistration.k8s.io": "io.k8s.kube-aggregator.pkg.apis.apiregistration",
}
_SHARED_STORES = {
    # One collection for two groups: an event written through either is read through both.
    ("events.k8s.io", "v1", "events"): "",
}
_DEPRECATIONS = {
    ("", "v1", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
    (
        "",
        "v1",
        "endpoints",
    ): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}
_STORED_AS = {("autoscaling", "v1", "horizontalpodautoscalers"): "v2"}


def definition_name(group: str, version: str, kind: str) -> str:
    """Return the name of a built-in kind's OpenAPI definition, such as io.k8s.api.apps.v1.Deployment."""
    package = _PACKAGES.get(group)
    if package is None:
        package = "io.k8s.api." + group.removesuffix(".apiserver.k8s.io").partition(".")[0]
    return f"{package}.{version}.{kind}"


@cache
def builtin_resources() -> tuple[ResourceInfo, ...]:
    """Return the built-in resources, in the real server's order."""
    return tuple(info for group in load().groups for info in _resources(group))


def _resources(group: BuiltinGroup) -> Iterator[ResourceInfo]:
    kinds = {entry.name: entry.kind for entry in group.resources}
    below: dict[str, list[Subresource]] = {}
    for entry in group.resources:
        parent, slash, name = entry.name.partition("/")
        if slash:
            below.setdefault(parent, []).append(_subresource(name, entry, kinds[parent]))
    for entry in group.resources:
        if "/" not in entry.name:
            yield _resource(group, entry, tuple(below.get(entry.name, ())))


def _subresource(name: str, entry: BuiltinResource, parent_kind: str) -> Subresource:
    kind = "" if entry.kind == parent_kind and not entry.group else entry.kind
    return Subresource(name=name, kind=kind, group=entry.group, version=entry.version, verbs=entry.verbs)


def _resource(
    group: BuiltinGroup, entry: BuiltinResource, subresources: tuple[Subresource, ...]
) -> ResourceInfo:
    definition = definition_name(group.name, group.version, entry.kind)
    return ResourceInfo(
        group=group.name,
        version=group.version,
        resource=entry.name,
        kind=entry.kind,
        namespaced=entry.namespaced,
        singular=entry.singular_name,
        short_names=entry.short_names,
        categories=entry.categories,
        verbs=entry.verbs,
        subresources=subresources,
        storage_version=_STORED_AS.get((group.name, group.version, entry.name), ""),
        storage_group=_SHARED_STORES.get((group.name, group.version, entry.name)),
        list_kind=f"{entry.kind}List",
        deprecation=_DEPRECATIONS.get((group.name, group.version, entry.name), ""),
        load_schema=partial(definitions().schema, definition) if definition in definitions() else None,
    )
