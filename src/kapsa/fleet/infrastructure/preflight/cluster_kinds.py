"""The kinds and namespaces that a manifest needs, resolved by what a cluster serves."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kapsa.fleet.domain.rollout.plans import PreflightProblem
from kapsa.runtime import ApiResource, Client, Forbidden, GroupVersionKind, NotFound, UnknownKind

__all__ = ["ClusterKinds", "kind_key", "resolve_kinds"]

Kind = tuple[str, str]
"""The apiVersion and the kind of an object."""


class ClusterKinds(msgspec.Struct, frozen=True):
    """The kinds of a manifest on one cluster."""

    served: dict[Kind, ApiResource]
    pending: frozenset[Kind]
    """Kinds that the CRDs of the version bring, and that the cluster does not serve yet."""
    changing: frozenset[Kind]
    """Kinds that the cluster serves, and whose CRD the version brings: it may change."""
    missing_namespaces: frozenset[str]
    problems: tuple[PreflightProblem, ...]

    def namespace(self, content: Mapping[str, Any], default: str) -> str:
        """Return the namespace of an object; empty if its kind has none."""
        resource = self.served.get(kind_key(content))
        if resource is None or not resource.namespaced:
            return ""
        return str(content["metadata"].get("namespace") or default)


def kind_key(content: Mapping[str, Any]) -> Kind:
    """Return the apiVersion and the kind of an object."""
    return str(content["apiVersion"]), str(content["kind"])


async def resolve_kinds(
    client: Client,
    contents: Iterable[Mapping[str, Any]],
    crds: Iterable[Mapping[str, Any]],
    default_namespace: str,
) -> ClusterKinds:
    """Resolve the kinds of objects, and the namespaces that they are in."""
    contents, brought = list(contents), frozenset(_brought(crds))
    served: dict[Kind, ApiResource] = {}
    problems: list[PreflightProblem] = []
    keys = dict.fromkeys(kind_key(each) for each in contents)
    for api_version, kind in keys:
        try:
            served[api_version, kind] = await client.discovery.resource(
                GroupVersionKind.parse(f"{api_version}/{kind}")
            )
        except (UnknownKind, ValueError):
            if (api_version, kind) not in brought:
                problems.append(_missing(api_version, kind))
    kinds = ClusterKinds(
        served,
        frozenset(keys) & brought - served.keys(),
        frozenset(keys) & brought & served.keys(),
        frozenset(),
        tuple(problems),
    )
    namespaces = {kinds.namespace(each, default_namespace) for each in contents} | {default_namespace}
    absent = [each for each in sorted(namespaces) if each and not await _exists(client, each)]
    return msgspec.structs.replace(kinds, missing_namespaces=frozenset(absent))


def _brought(crds: Iterable[Mapping[str, Any]]) -> Iterable[Kind]:
    for crd in crds:
        spec = crd.get("spec") or {}
        kind = str((spec.get("names") or {}).get("kind", ""))
        for version in spec.get("versions") or ():
            if version.get("served"):
                yield f"{spec.get('group')}/{version.get('name')}", kind


def _missing(api_version: str, kind: str) -> PreflightProblem:
    return PreflightProblem(
        "MissingKind",
        f"the cluster does not serve {kind} of {api_version}, which the chart uses: install what brings it, "
        "or turn it off in the values",
    )


async def _exists(client: Client, namespace: str) -> bool:
    try:
        await client.get("v1/Namespace", namespace, metadata_only=True)
    except NotFound:
        return False
    except (Forbidden, ValueError):
        pass  # the trial of its objects says why
    return True
