"""A CRD of a chart joined with the CRD that a cluster has: nothing that is there is removed.

Versions that the chart lacks stay, served as they are, and are no longer the storage version. In a version that both
have, the chart's schema decides, and properties that only the cluster has stay: no data is pruned.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["joined_spec", "storage_version", "version_names", "with_storage"]

Schema = Mapping[str, Any]
Spec = dict[str, Any]


def joined_spec(chart: Mapping[str, Any], live: Mapping[str, Any]) -> Spec:
    """Return the chart's spec with what the live spec has beyond it."""
    present = {each["name"]: each for each in live.get("versions") or ()}
    versions = [_joined_version(each, present.get(each["name"])) for each in chart["versions"]]
    named = version_names(chart)
    kept = [{**each, "storage": False} for name, each in present.items() if name not in named]
    return {**chart, "versions": versions + kept}


def version_names(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the versions."""
    return tuple(str(each["name"]) for each in spec.get("versions") or ())


def storage_version(spec: Mapping[str, Any]) -> str:
    """Return the name of the version that objects are stored in; empty if none is marked."""
    return next((str(each["name"]) for each in spec.get("versions") or () if each.get("storage")), "")


def with_storage(spec: Mapping[str, Any], name: str) -> Spec:
    """Return a spec with another storage version; unchanged if it does not have that version."""
    if name not in version_names(spec):
        return dict(spec)
    versions = [{**each, "storage": each["name"] == name} for each in spec["versions"]]
    return {**spec, "versions": versions}


def _joined_version(chart: Mapping[str, Any], live: Mapping[str, Any] | None) -> Spec:
    schema = _root(chart)
    if live is None or schema is None:
        return dict(chart)
    earlier = _root(live)
    if earlier is None:
        return dict(chart)
    return {**chart, "schema": {"openAPIV3Schema": _joined_schema(schema, earlier)}}


def _root(version: Mapping[str, Any]) -> Schema | None:
    root = (version.get("schema") or {}).get("openAPIV3Schema")
    return root if isinstance(root, Mapping) else None


def _joined_schema(chart: Schema, live: Schema) -> Schema:
    """Return the chart's schema with the properties that only the live one has, at any depth."""
    if chart.get("type") != live.get("type"):
        return chart
    joined = dict(chart)
    for part in ("items", "additionalProperties"):
        if isinstance(chart.get(part), Mapping) and isinstance(live.get(part), Mapping):
            joined[part] = _joined_schema(chart[part], live[part])
    properties = _joined_properties(chart, live)
    return {**joined, "properties": properties} if properties else joined


def _joined_properties(chart: Schema, live: Schema) -> dict[str, Schema]:
    own: Mapping[str, Schema] = chart.get("properties") or {}
    earlier: Mapping[str, Schema] = live.get("properties") or {}
    joined = {
        name: _joined_schema(schema, earlier[name]) if name in earlier else schema
        for name, schema in own.items()
    }
    # An object that keeps unknown fields, or is a map, prunes nothing: there is nothing to save.
    open_ended = chart.get("x-kubernetes-preserve-unknown-fields") or chart.get("additionalProperties")
    if not open_ended:
        joined |= {name: schema for name, schema in earlier.items() if name not in own}
    return joined
